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
	// replyFD is the child's descriptor of the pipe for its replies: the first one after the
	// standard three.
	replyFD = 3

	// maxStderr is how many bytes of the end of a child's stderr are kept.
	maxStderr = 64 << 10
)

// Child is this program, started again, so that a plugin's failure affects only the child.
type Child struct {
	// Requests are the requests for the child, after the first one.
	Requests *json.Encoder
	// Replies are the child's replies.
	Replies *json.Decoder

	command  *exec.Cmd
	requests io.Closer
	replies  io.Closer
	stderr   tail
}

// StartChild starts this program again and ends it when ctx is done. It sets the variable in the
// child's environment to the request as JSON; [ServeParent] reads it in the child. The caller calls
// Wait.
func StartChild(ctx context.Context, variable string, request any) (*Child, error) {
	value, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writer.Close() //nolint:errcheck // the child has its own
	c := &Child{command: exec.CommandContext(ctx, self), Replies: json.NewDecoder(reader), replies: reader}
	c.command.Env = append(os.Environ(), variable+"="+string(value))
	c.command.ExtraFiles = []*os.File{writer}
	c.command.Stderr = &c.stderr
	c.command.WaitDelay = time.Second // processes of the plugin may keep stderr open
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

// quitTimeout is how long a child may take to write its stacks.
const quitTimeout = 5 * time.Second

// Quit ends the child after it has written the stacks of all its goroutines, which Said returns
// after Wait. It does not block.
func (c *Child) Quit() {
	// A child that handles the signal is killed.
	_ = c.command.Process.Signal(syscall.SIGQUIT)
	time.AfterFunc(quitTimeout, func() { _ = c.command.Process.Kill() })
}

// Output returns the end of the child's standard error. Call it after Wait.
func (c *Child) Output() string { return c.stderr.String() }

// Wait waits until the child has ended and returns the reason as text. It closes the requests, and
// a child that reads them ends then.
func (c *Child) Wait() (ended string) {
	c.requests.Close()
	exit := c.command.Wait()
	c.replies.Close()
	return exitReason(exit, c.stderr.String())
}

// ServeParent returns, in a child started with the variable, the first request and the encoder for
// replies. started is false in any other process. Call it before anything else in main.
func ServeParent(variable string, request any) (replies *json.Encoder, started bool, err error) {
	value, started := os.LookupEnv(variable)
	if !started {
		return nil, false, nil
	}
	// Processes that the plugin starts must inherit neither.
	if err := os.Unsetenv(variable); err != nil {
		return nil, true, err
	}
	syscall.CloseOnExec(replyFD)
	if err := json.Unmarshal([]byte(value), request); err != nil {
		return nil, true, fmt.Errorf("decode %s: %w", variable, err)
	}
	return json.NewEncoder(os.NewFile(replyFD, "replies")), true, nil
}

// exitReason returns how a child ended: the headline of the Go runtime if there is one, otherwise
// the last line of stderr.
func exitReason(exit error, stderr string) string {
	if exit == nil {
		exit = errors.New("exit status 0")
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	output := lines[len(lines)-1]
	for _, line := range lines {
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ") ||
			strings.HasPrefix(line, "SIG") {
			output = line
			break
		}
	}
	if output == "" {
		return exit.Error()
	}
	return fmt.Sprintf("%v: %s", exit, output)
}

// tail keeps the last maxStderr written bytes.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	t.Buffer.Next(max(0, t.Buffer.Len()-maxStderr))
	return n, err
}
