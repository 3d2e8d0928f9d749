// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// runner runs trials.
type runner struct {
	program string // package trial
	scratch string
	// perf is the directory of scheduler_perf, and env what its code needs to find its files.
	perf string
	env  []string
}

// newRunner returns a runner that uses the build products in output. Call close when it is done.
func newRunner(ctx context.Context, output string) (*runner, error) {
	kubernetes, err := goOutput(ctx, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	modules, err := goOutput(ctx, "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	programs := filepath.Join(output, "bench", "bin")
	r := &runner{
		program: filepath.Join(programs, "upstream-cases"),
		perf:    filepath.Join(kubernetes, "test", "integration", "scheduler_perf"),
		env: append(os.Environ(),
			// Where upstream looks for etcd.
			"PATH="+programs+":"+os.Getenv("PATH"),
			// Programs that are built with -trimpath do not know where their sources are. That of
			// upstream finds them by these two.
			"TEST_SRCDIR="+modules, "TEST_WORKSPACE=.",
			// A check of upstream's informers, which schedulers do not have in production either.
			"KUBE_CACHE_MUTATION_DETECTOR=false",
		),
	}
	if r.scratch, err = os.MkdirTemp("", "upstream-cases-"); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *runner) close() { os.RemoveAll(r.scratch) }

// goOutput returns what the go command prints.
func goOutput(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// compare runs a case so often with each of the two variants, which take turns in being first.
func (r *runner) compare(ctx context.Context, c Case, rounds int) (Compared, error) {
	compared := Compared{Case: c}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "%v: round %d of %d\n", c, round+1, rounds)
		for turn := range 2 {
			ours := (round+turn)%2 == 1
			trial, err := r.try(ctx, c, ours)
			if err != nil {
				return compared, fmt.Errorf("%v: %w", c, err)
			}
			if ours {
				compared.Ours = append(compared.Ours, trial)
			} else {
				compared.Upstream = append(compared.Upstream, trial)
			}
		}
	}
	return compared, nil
}

// try runs a case once.
func (r *runner) try(ctx context.Context, c Case, ours bool) (Trial, error) {
	results, err := os.MkdirTemp(r.scratch, "trial-")
	if err != nil {
		return Trial{}, err
	}
	defer os.RemoveAll(results)
	log, err := os.Create(filepath.Join(results, "log"))
	if err != nil {
		return Trial{}, err
	}
	defer log.Close() //nolint:errcheck // what is lost would only explain a failure
	command := exec.CommandContext(ctx, r.program,
		"-cases="+filepath.Join(r.perf, c.Topic), fmt.Sprintf("-ours=%v", ours), "-data-items-dir="+results,
		"-test.run=^$", "-test.benchtime=1x", "-test.bench="+c.pattern(), "-perf-scheduling-label-filter=")
	command.Env, command.Stdout, command.Stderr = r.env, log, log
	// An etcd that outlives its API server is ended with it.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 20 * time.Second
	if err := command.Run(); err != nil {
		return Trial{}, fmt.Errorf("%w; the end of its log:\n%s", err, lastLines(log.Name(), 40))
	}
	trial, err := readTrial(results)
	trial.CPUSeconds = (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds()
	return trial, err
}

// lastLines returns the last lines of a file.
func lastLines(path string, most int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// readTrial reads the results that upstream's code has written to a directory.
func readTrial(directory string) (Trial, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.json"))
	if err != nil {
		return Trial{}, err
	}
	if len(files) != 1 {
		return Trial{}, fmt.Errorf("it wrote %d files of results, not one", len(files))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return Trial{}, err
	}
	var written struct {
		Items []struct {
			Data   map[string]float64 `json:"data"`
			Labels map[string]string  `json:"labels"`
		} `json:"dataItems"`
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return Trial{}, fmt.Errorf("%s: %w", files[0], err)
	}
	var trial Trial
	for _, item := range written.Items {
		switch item.Labels["Metric"] {
		case "SchedulingThroughput":
			trial.PodsPerSecond = item.Data["Average"]
		case "SchedulingDuration":
			trial.Seconds = item.Data["Duration"]
		}
	}
	if trial.PodsPerSecond == 0 {
		return Trial{}, fmt.Errorf("%s has no throughput: the case took no second, or no pod was bound", files[0])
	}
	return trial, nil
}
