// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what a person types and reads on one end, a program's input and
// output on the other.
type terminal struct {
	person, user *os.File
	lines        *bufio.Reader
}

func openTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatalf("unlock a terminal: %v", err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatalf("number a terminal: %v", err)
	}
	user, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	screen := &terminal{person: person, user: user, lines: bufio.NewReader(person)}
	screen.resize(t, rows, columns)
	return screen
}

// start starts a program that has the terminal for its own, from which it learns its size. When the
// program ends, the terminal does.
func (s *terminal) start(t *testing.T, command *exec.Cmd) {
	t.Helper()
	command.Stdin, command.Stdout, command.Stderr = s.user, s.user, s.user
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.user.Close(); err != nil {
		t.Fatal(err)
	}
}

// resize changes the size, which the program learns by a signal, as by any window.
func (s *terminal) resize(t *testing.T, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(s.person.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatalf("resize a terminal: %v", err)
	}
}

func (s *terminal) write(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.person.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// awaitLine reads on until it comes to a line that is want, and not its echo.
func (s *terminal) awaitLine(t *testing.T, want string) {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if strings.TrimSpace(line) == want {
			return
		}
		if err != nil {
			t.Fatalf("the terminal shows no line %q: %v", want, err)
		}
	}
}
