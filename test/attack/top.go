// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/checkout"
)

// showUse has the ghost's kubelet list so many kinds of devices, in whose name %d is a number, and
// an administrator look at all nodes with kubectl device top. The attempt succeeds if that takes
// longer than delayTimeout, or if it prints a control character, which moves a terminal's cursor.
func showUse(ctx context.Context, p *trial, arguments struct {
	Kinds     int    `json:"kinds"`
	Name      string `json:"name"`
	Unguarded bool   `json:"unguarded"`
}) (Got, error) {
	kinds := map[string]int{}
	for i := range arguments.Kinds {
		kinds[fmt.Sprintf(arguments.Name, i)+"/d/r"] = 1
	}
	list, err := json.Marshal(map[string]any{"tree": map[string]any{"resource/group": kinds}})
	if err != nil {
		return Got{}, err
	}
	directory := filepath.Dir(p.run.kubecri)
	if arguments.Unguarded {
		directory = filepath.Join(p.run.dir, unguardedKubectl)
		if err := buildUnguarded(ctx, directory); err != nil {
			return Got{}, err
		}
	}
	report := nodeReport{annotations: map[string]string{deviceinfo.Annotation: string(list)}}
	return reporting(report, func(ctx context.Context, s *Stage) (Got, error) {
		return s.top(ctx, directory)
	})(ctx, p.Stage)
}

// top looks at all nodes with the kubectl-device of a directory.
func (s *Stage) top(ctx context.Context, directory string) (Got, error) {
	limited, cancel := context.WithTimeout(ctx, delayTimeout)
	defer cancel()
	command := s.cluster.KubectlCommand(limited, "device", "top")
	command.Env = append(command.Env, "PATH="+directory+":"+os.Getenv("PATH"))
	command.WaitDelay = time.Second
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	began := time.Now()
	err := command.Run()
	took := time.Since(began).Round(time.Second / 10)
	if ctx.Err() == nil && limited.Err() != nil {
		return Got{Succeeds, fmt.Sprintf("it takes longer than %s", delayTimeout)}, nil
	}
	printed := said.String()
	if err != nil {
		return Got{}, fmt.Errorf("kubectl device top: %w: %.1000s", err, printed)
	}
	for _, node := range []string{ghost, s.node(scheduled).Name} {
		if !strings.Contains(printed, node) {
			return Got{}, fmt.Errorf("kubectl device top says nothing of node %s: %.1000s", node, printed)
		}
	}
	for _, char := range printed {
		if unicode.IsControl(char) && char != '\n' {
			return Got{Succeeds, fmt.Sprintf("it prints the character %q", char)}, nil
		}
	}
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	return Got{NoEffect, fmt.Sprintf("it prints %d lines in %s, the last one %q", len(lines), took,
		lines[len(lines)-1])}, nil
}

// unguardedKubectl is the directory of a kubectl-device without what guards it from nodes, in that
// of files of no lasting value.
const unguardedKubectl = "kubectl-unguarded"

// unguarded are changes of its sources, by file: a text, and what stands in its place. It goes
// through all devices of a node for each kind, reads names with any characters, and prints what a
// node says as it is.
var unguarded = map[string][2]string{
	"pkg/kubectl/devices/usage.go": {"	levels := map[string]*LevelFree{}\n", `	levels := map[string]*LevelFree{}
	devices := map[string]bool{}
	for path, kind := range kindOf {
		devices[path] = kind == u.Kind
	}
`},
	"pkg/deviceinfo/name.go": {
		"		if r <= ' ' || r > '~' || r == '\"' || r == '\\\\' {\n", "		if r == 0 {\n",
	},
	"pkg/kubectl/columns/columns.go": {
		"		if unicode.IsControl(r) {\n", "		if unicode.IsControl(r) && false {\n",
	},
}

// buildUnguarded builds that kubectl-device into a directory.
func buildUnguarded(ctx context.Context, directory string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	replaced := map[string]string{}
	for file, change := range unguarded {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		if strings.Count(string(content), change[0]) != 1 {
			return fmt.Errorf("%s does not have %q once", file, change[0])
		}
		changed := filepath.Join(directory, filepath.Base(file))
		replaced[filepath.Join(root, file)] = changed
		if err := os.WriteFile(changed, []byte(strings.Replace(string(content), change[0], change[1], 1)),
			0o644); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	file := filepath.Join(directory, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", file, "-o",
		filepath.Join(directory, "kubectl-device"), "./cmd/kubectl-device")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it
	if said, err := build.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build a kubectl-device without guards: %w", err), errors.New(string(said)))
	}
	return nil
}
