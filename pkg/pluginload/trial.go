// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// startLimit is how long a child may take to start and to report, beyond the plugin's limit.
	startLimit = 15 * time.Second

	// maxStderr is how much of what a child wrote last is kept.
	maxStderr = 64 << 10
)

// try has a child process load file and returns the plugin's name. The error is a *refusal, or
// ctx's.
func try(ctx context.Context, file string, t target) (name string, err error) {
	within, cancel := context.WithTimeout(ctx, t.timeLimit+startLimit)
	defer cancel()

	value, err := json.Marshal(request{File: file, Symbol: t.symbol, TimeLimit: t.timeLimit})
	if err != nil {
		return "", err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", noChild(err)
	}
	defer reader.Close()

	var stderr tail
	child := exec.CommandContext(within, self)
	child.Env = append(os.Environ(), requestEnv+"="+string(value))
	child.ExtraFiles = []*os.File{writer}
	child.Stderr = &stderr
	child.WaitDelay = time.Second // processes that the plugin started may hold stderr open
	err = child.Start()
	writer.Close()
	if err != nil {
		return "", noChild(err)
	}

	var rep reply
	decodeErr := json.NewDecoder(reader).Decode(&rep)
	exit := child.Wait()
	switch {
	case decodeErr == nil && rep.Refusal != nil:
		return "", rep.Refusal
	case decodeErr == nil:
		return rep.Name, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case within.Err() != nil:
		return "", refuse(askAuthor, "the process that tried it hung for %v", t.timeLimit+startLimit)
	}
	return "", refuse(askAuthor, "ended the process that tried it: %s", exitReason(exit, stderr.String()))
}

func noChild(err error) error {
	return refuse("allow this program to start itself", "cannot be tried in a child process: %v", err)
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
