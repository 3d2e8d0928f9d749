// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is the scripted plugin, see test/cmd/scriptedplugin.
var program string

// buildProgram builds it in a directory.
func buildProgram(dir string) error {
	program = filepath.Join(dir, "scriptedplugin")
	build := exec.Command("go", "build", "-o", program, "../../cmd/scriptedplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the scripted plugin: %w\n%s", err, said)
	}
	return nil
}

// process is a scripted plugin that runs. It belongs to one goroutine.
type process struct {
	command *exec.Cmd
	lines   io.WriteCloser
	said    *bufio.Reader
	errors  bytes.Buffer
}

// startProcess starts a plugin in the directory where plugins register.
func startProcess(ctx context.Context, directory, name, resource string) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, program, name, resource)}
	p.command.Dir, p.command.Stderr = directory, &p.errors
	lines, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines, p.said = lines, bufio.NewReader(output)
	return p, p.command.Start()
}

// do has the plugin carry out a line, and returns what it says.
func (p *process) do(line string) (string, error) {
	if _, err := io.WriteString(p.lines, line+"\n"); err != nil {
		return "", fmt.Errorf("the plugin has ended: %w", err)
	}
	said, err := p.said.ReadString('\n')
	if err != nil {
		p.end()
		return "", fmt.Errorf("the plugin has ended: %s", strings.TrimSpace(p.errors.String()))
	}
	return strings.TrimSuffix(said, "\n"), nil
}

// end kills the plugin, and waits until it has ended. It may be called again.
func (p *process) end() {
	if p.command.ProcessState == nil {
		_ = p.command.Process.Kill() // it may have ended
		_ = p.command.Wait()         // killed, or ended by itself
	}
}

// must has the plugin carry out lines, or ends the test.
func (p *process) must(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, err := p.do(line); err != nil {
			t.Fatal(err)
		}
	}
}
