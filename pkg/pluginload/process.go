// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// replyFD is where the child finds the pipe for its replies: the first one behind the standard
	// three.
	replyFD = 3

	// maxStderr is how much of what a child wrote last is kept.
	maxStderr = 64 << 10
)

// Child is this program, started again, so that whatever a plugin does there happens to the child.
type Child struct {
	// Requests are read by the child, after the first one.
	Requests *json.Encoder
	// Replies are what the child sends.
	Replies *json.Decoder

	command  *exec.Cmd
	requests io.Closer
	replies  io.Closer
	stderr   tail
}

// StartChild starts this program again and ends it when ctx is done. The variable is set in its
// environment, to the request as JSON: by that, [ServeParent] knows in the child what it is there
// for. The caller calls Wait.
func StartChild(ctx context.Context, variable string, request any) (*Child, error) {
	value, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	c := &Child{command: exec.CommandContext(ctx, self), Replies: json.NewDecoder(reader), replies: reader}
	c.command.Env = append(os.Environ(), variable+"="+string(value))
	c.command.ExtraFiles = []*os.File{writer}
	c.command.Stderr = &c.stderr
	c.command.WaitDelay = time.Second // processes that the plugin started may hold stderr open
	requests, err := c.command.StdinPipe()
	if err == nil {
		c.Requests, c.requests = json.NewEncoder(requests), requests
		err = c.command.Start()
	}
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return c, nil
}

// quitTime is how long a child may take to write its stacks.
const quitTime = 5 * time.Second

// Quit ends the child such that it writes the stacks of all its goroutines first, which Said
// returns after Wait. It returns at once.
func (c *Child) Quit() {
	// What handles the signal, or is about to end, is ended by force.
	_ = c.command.Process.Signal(syscall.SIGQUIT)
	time.AfterFunc(quitTime, func() { _ = c.command.Process.Kill() })
}

// Said returns what the child wrote last to its standard error. Call it after Wait.
func (c *Child) Said() string { return c.stderr.String() }

// Wait waits until the child has ended and returns how, in words. A child that reads requests ends
// when there are no more, which Wait tells it.
func (c *Child) Wait() (ended string) {
	c.requests.Close()
	exit := c.command.Wait()
	c.replies.Close()
	return exitReason(exit, c.stderr.String())
}

// ServeParent returns, in a child that was started with the variable, the first request and where
// to send replies. asked is false in any other process. Call it before anything else in main.
func ServeParent(variable string, request any) (replies *json.Encoder, asked bool, err error) {
	value, asked := os.LookupEnv(variable)
	if !asked {
		return nil, false, nil
	}
	// Neither is for processes that the plugin starts.
	if err := os.Unsetenv(variable); err != nil {
		return nil, true, err
	}
	syscall.CloseOnExec(replyFD)
	if err := json.Unmarshal([]byte(value), request); err != nil {
		return nil, true, fmt.Errorf("decode %s: %w", variable, err)
	}
	return json.NewEncoder(os.NewFile(replyFD, "replies")), true, nil
}

// exitReason returns how a child ended: the headline of the Go runtime if there is one, else the
// last line that the child wrote.
func exitReason(exit error, stderr string) string {
	if exit == nil {
		exit = errors.New("exit status 0")
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	words := lines[len(lines)-1]
	for _, line := range lines {
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ") ||
			strings.HasPrefix(line, "SIG") {
			words = line
			break
		}
	}
	if words == "" {
		return exit.Error()
	}
	return fmt.Sprintf("%v: %s", exit, words)
}

// tail keeps the last maxStderr bytes that were written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	t.Buffer.Next(max(0, t.Buffer.Len()-maxStderr))
	return n, err
}
