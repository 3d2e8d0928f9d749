// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// spec is what a sandbox's first process gets, as JSON on its standard input.
type spec struct {
	Hostname  string
	Root, Var string
	Visible   []string
	DoorsTo   []string
}

// ready is the first process's answer when the sandbox is complete. Anything else is an error
// message.
const ready = "ready"

// Files that the first process inherits.
const (
	answerFile    = 3
	firstDoorFile = 4 // the listeners of spec.DoorsTo, in their order
)

// Main is the life of a sandbox's first process. Its parent starts it in new namespaces. It
// returns an error only when the sandbox could not be made.
func Main() error {
	var s spec
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("read orders: %w", err) // the launcher was killed before it gave any
	}
	answer := os.NewFile(answerFile, "answer")
	if err := furnish(s); err != nil {
		fmt.Fprint(answer, err)
		return err
	}
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, unix.SIGCHLD)
	for i, to := range s.DoorsTo {
		listener, err := net.FileListener(os.NewFile(uintptr(firstDoorFile+i), "listener"))
		if err != nil {
			return fmt.Errorf("use the inherited listener: %w", err)
		}
		go forward(listener, to)
	}
	if _, err := answer.WriteString(ready); err != nil {
		return err
	}
	if err := answer.Close(); err != nil {
		return err
	}
	for range orphans {
		reap()
	}
	return nil
}

// furnish makes the calling process's namespaces the sandbox that s requests.
func furnish(s spec) error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return buildRoot(s)
}

// reap collects every dead child: orphans of the sandbox's processes become the first process's
// own.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// forward forwards each connection that arrives at listener, a socket of the machine's network, to
// an address of the sandbox's.
func forward(listener net.Listener, address string) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "accept a forwarded connection:", err)
			return
		}
		go func() {
			defer outside.Close()
			inside, err := net.Dial("tcp", address)
			if err != nil {
				fmt.Fprintln(os.Stderr, "forward a connection:", err)
				return
			}
			defer inside.Close()
			splice(outside.(*net.TCPConn), inside.(*net.TCPConn))
		}()
	}
}

// splice copies both ways until both sides have said all, and passes each one's end of speech on to
// the other.
func splice(a, b *net.TCPConn) {
	done := make(chan struct{})
	oneWay := func(to, from *net.TCPConn) {
		io.Copy(to, from) //nolint:errcheck // a broken connection ends, which is all that can be passed on
		to.CloseWrite()
	}
	go func() { defer close(done); oneWay(a, b) }()
	oneWay(b, a)
	<-done
}
