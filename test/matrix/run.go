// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// Run runs the stories in the settings that have them, one after another, and enters what came of
// each in the table of docs/deploy/versions.md when it has ended. The rest of the table stays. What
// the tests say is in files of _output/matrix. The error names what failed.
func Run(ctx context.Context, out io.Writer, settings []Setting, stories []Story) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	titles, err := titles(ctx, root)
	if err != nil {
		return err
	}
	var failed error
	for _, setting := range settings {
		for _, story := range stories {
			if !story.has(setting.Kubernetes) {
				continue
			}
			began := time.Now()
			log := filepath.Join(root, "_output", "matrix",
				fmt.Sprintf("%s-%s-%s.log", setting.Kubernetes, setting.Runtime, story.ID))
			err := story.run(ctx, root, setting, log)
			if ctx.Err() != nil {
				return errors.Join(failed, context.Cause(ctx))
			}
			cell := passed
			if err != nil {
				cell = failure
				err = fmt.Errorf("%s on %s: %w; see %s", story.ID, titles[setting], err, log)
				failed = errors.Join(failed, err)
			}
			fmt.Fprintf(out, "%-10s on %s: %s in %v\n", story.ID, titles[setting], cell,
				time.Since(began).Round(time.Second))
			if err := enter(filepath.Join(root, Page), titles, setting, story, cell); err != nil {
				return errors.Join(failed, err)
			}
		}
	}
	return failed
}

// run runs the story's tests. It returns an error unless each of them has passed.
func (s Story) run(ctx context.Context, root string, setting Setting, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it is for people to read
	var errs []error
	for _, directory := range slices.Sorted(maps.Keys(s.Tests)) {
		tests := s.Tests[directory]
		command := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-timeout=30m", "-json",
			"-run=^("+strings.Join(tests, "|")+")$", "./"+filepath.Join("e2e", directory))
		command.Dir = filepath.Join(root, "test")
		command.Env = append(os.Environ(), clustertest.KubernetesVariable+"="+string(setting.Kubernetes),
			clustertest.RuntimeVariable+"="+string(setting.Runtime), clustertest.FullVariable+"=true")
		// A cluster is taken down before its process ends.
		command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
		command.Stderr = log
		stdout, err := command.StdoutPipe()
		if err != nil {
			return err
		}
		if err := command.Start(); err != nil {
			return err
		}
		results := readResults(stdout, log)
		err = command.Wait()
		for _, test := range tests {
			if results[test] != "pass" {
				errs = append(errs, fmt.Errorf("%s has not passed", test))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("go test %s: %w", directory, err))
		}
	}
	return errors.Join(errs...)
}

// readResults returns the last action of each test, by its name, from what go test -json prints,
// and writes what the tests print to log.
func readResults(printed io.Reader, log io.Writer) map[string]string {
	results := map[string]string{}
	lines := bufio.NewReader(printed)
	for {
		line, err := lines.ReadBytes('\n')
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) == nil {
			if event.Action == "output" {
				fmt.Fprint(log, event.Output)
			} else if event.Test != "" {
				results[event.Test] = event.Action
			}
		}
		if err != nil {
			return results
		}
	}
}
