// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestASocketIsThatOfTheUserWhoHasOpenedIt(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("this machine has no %s: %v", address, err)
			continue
		}
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		own, to := connection.LocalAddr().String(), connection.RemoteAddr().String()
		if !connectsAsUser(own, to) {
			t.Errorf("%s is not this user's", own)
		}
		if connectsAsUser(own, "127.0.0.1:1") {
			t.Errorf("of %s another connection counts", own)
		}
		connection.Close()
		listener.Close()
	}
	for _, address := range []string{"127.0.0.1:1", "pipe"} { // below the ports that clients get
		if connectsAsUser(address, "127.0.0.1:1") {
			t.Errorf("%s is this user's", address)
		}
	}
}

func TestASocketOfAnotherUserIsNotThisUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can open a socket as another user")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(65534); err != nil { // of this thread, which opens the socket
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", listener.Addr().String())
	if _, failed := unix.SetfsuidRetUid(0); failed != nil {
		t.Fatal(failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if other := connection.LocalAddr().String(); connectsAsUser(other, listener.Addr().String()) {
		t.Errorf("%s is this user's", other)
	}
}
