// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort returns a TCP port of 127.0.0.1 without a listener. It is below those that the
// kernel chooses itself, so that it is still free a little later.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := 20000 + rand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
		last = err
	}
	return 0, errors.Join(errors.New("no port is free"), last)
}
