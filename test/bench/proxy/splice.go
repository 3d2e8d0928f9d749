// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
)

// serveSplice copies bytes between each connection and one of its own to upstream.
func serveSplice(listener net.Listener, upstream string) error {
	for {
		down, err := listener.Accept()
		if err != nil {
			return err
		}
		up, err := net.Dial("unix", upstream)
		if err != nil {
			down.Close()
			continue
		}
		forward := func(to, from net.Conn) {
			// However it ends, both sides have ended.
			_, _ = io.Copy(to, from)
			to.Close()
			from.Close()
		}
		go forward(up, down)
		go forward(down, up)
	}
}
