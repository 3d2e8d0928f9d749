// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// logged returns the lines that a program has logged, in all its lives, with a text in them.
func logged(t *testing.T, program *cluster.Component, text string) []string {
	t.Helper()
	content, err := os.ReadFile(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(content), "\n"),
		func(line string) bool { return !strings.Contains(line, text) })
}

var deviceID = regexp.MustCompile(`devices_ids:\\"([^"\\]*)\\"`)

// allocated returns the IDs of each call of Allocate that Kubernetes' example has logged. The
// vendors' plugins log none of it: what they were requested shows in their answers.
func allocated(t *testing.T, example *cluster.Component) [][]string {
	t.Helper()
	var calls [][]string
	for _, line := range logged(t, example, `"Allocate" request=`) {
		var ids []string
		for _, match := range deviceID.FindAllStringSubmatch(line, -1) {
			ids = append(ids, match[1])
		}
		slices.Sort(ids)
		calls = append(calls, ids)
	}
	return calls
}

// awaitLog waits until a program has logged a line with a text in it.
func awaitLog(ctx context.Context, t *testing.T, program *cluster.Component, text string) {
	t.Helper()
	clustertest.Await(ctx, t, program.Name+" to log "+text, func() bool {
		return len(logged(t, program, text)) > 0
	})
}
