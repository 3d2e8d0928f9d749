// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on. It is below those that the
// kernel gives to whoever asks for any port, so that it is still free a moment later.
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
