// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// journal is what a program logs from some time on.
type journal struct {
	program *cluster.Component
	from    int64
}

// restart kills a program, starts it again, and returns what it logs in its new life.
func restart(ctx context.Context, t *testing.T, program *cluster.Component) journal {
	t.Helper()
	if err := program.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return journal{program: program, from: info.Size()}
}

// lines returns the lines with a text in them.
func (j journal) lines(t *testing.T, text string) []string {
	t.Helper()
	log, err := os.Open(j.program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	content, err := io.ReadAll(io.NewSectionReader(log, j.from, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// await waits until the program has logged a line with a text in it.
func (j journal) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	clustertest.Await(ctx, t, j.program.Name+" to log "+text, func() bool {
		return len(j.lines(t, text)) > 0
	})
}
