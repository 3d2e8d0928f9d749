// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/pages"
)

// guide is the page that is read by headings.
const guide = "docs/deploy/kubeadm.md"

// Pages without a story of their own have commands for the API server alone. Those of one page run
// in order, in a directory of its own.
func TestMarkedCommandsOfPagesSucceed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	blocks, err := pages.MarkedFor(root, "test/e2e/guides")
	if err != nil {
		t.Fatal(err)
	}
	r := reader{t, ctx}
	r.do("kubectl create namespace training")
	t.Cleanup(func() {
		after := reader{t, context.WithoutCancel(ctx)}
		after.do("kubectl delete --ignore-not-found namespace training kubedevice-system")
		after.do("kubectl taint nodes --all nvidia.com/gpu-")
		for _, of := range []string{"policies-optional", "policies", "rbac"} {
			after.do("kubectl delete --ignore-not-found -f " + filepath.Join(root, "deploy", of))
		}
	})
	for _, block := range blocks {
		if block.Page == guide || block.Page == move {
			continue
		}
		work := filepath.Join(dir, strings.ReplaceAll(strings.TrimSuffix(block.Page, path.Ext(block.Page)), "/", "-"))
		if err := os.MkdirAll(work, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{"deploy", "plugins"} {
			if err := os.Symlink(filepath.Join(root, of), filepath.Join(work, of)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		script := strings.NewReplacer("NODE", node.Name, "worker-1", node.Name).Replace(block.Script)
		if printed, err := r.try("cd " + work + " && set -e\n" + script); err != nil {
			t.Errorf("%s: %v\n%s%s", block, err, script, printed)
		}
	}
}
