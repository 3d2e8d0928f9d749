// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// outcome is how a program ended.
type outcome struct {
	Stdout, Stderr string
	Code           int
}

// inGeneral returns an outcome without what differs from node to node and from time to time.
func (o outcome) inGeneral() outcome {
	return outcome{Stdout: inGeneral(o.Stdout), Stderr: inGeneral(o.Stderr), Code: o.Code}
}

// kubectl runs kubectl to its end, in a pod's namespace.
func kubectl(ctx context.Context, t *testing.T, pod *corev1.Pod, stdin io.Reader, args ...string) outcome {
	t.Helper()
	command := shared.KubectlCommand(ctx, append([]string{"--namespace=" + pod.Namespace}, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	err := command.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.Exited()) {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return outcome{Stdout: stdout.String(), Stderr: stderr.String(), Code: command.ProcessState.ExitCode()}
}

// follower is a kubectl that goes on printing.
type follower struct {
	command *exec.Cmd
	lines   *bufio.Reader
	stderr  bytes.Buffer
}

// follow starts kubectl for a pod. It is killed, if it has not ended yet, with the test.
func follow(ctx context.Context, t *testing.T, pod *corev1.Pod, args ...string) *follower {
	t.Helper()
	f := &follower{command: shared.KubectlCommand(ctx, append([]string{"--namespace=" + pod.Namespace}, args...)...)}
	stdout, err := f.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.command.Stderr, f.lines = &f.stderr, bufio.NewReader(stdout)
	if err := f.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.command.Process.Kill() //nolint:errcheck // it may have ended
		f.command.Wait()         //nolint:errcheck // it may have been killed
	})
	return f
}

// awaitLine reads on until it comes to a line with a text, and returns the line.
func (f *follower) awaitLine(t *testing.T, text string) string {
	t.Helper()
	for {
		line, err := f.lines.ReadString('\n')
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
		if err != nil {
			t.Fatalf("%s: no line with %q: %v", f.command, text, err)
		}
	}
}

// rest reads on until kubectl ends, and returns what it read. A kubectl that fails fails the test.
func (f *follower) rest(t *testing.T) string {
	t.Helper()
	rest, err := io.ReadAll(f.lines)
	if err := errors.Join(err, f.command.Wait()); err != nil {
		t.Fatalf("%s: %v: %s", f.command, err, &f.stderr)
	}
	return string(rest)
}
