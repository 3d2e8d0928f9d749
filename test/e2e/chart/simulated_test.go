// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/pages"
)

// The commands are those of docs/get-started/simulated.md. Changed are only what the page says that
// differs between clusters, and the image: none can be pulled.
func TestSimulatedGPUsComeAndGoAsTheirPageSays(t *testing.T) {
	blocks, err := pages.MarkedFor(root, "test/e2e/chart")
	if err != nil {
		t.Fatal(err)
	}
	s := beginWithoutNamespace(t)
	own := strings.NewReplacer(
		"NODE", shared.Nodes[0].Name,
		"kubectl apply -f deploy/examples/pair.yaml",
		"sed 's,image: busybox,image: "+image.Busybox+",' deploy/examples/pair.yaml | kubectl apply -f -",
		"examples/simulated.yaml", "examples/simulated.yaml --set node.kubeconfig="+kubeconfig+
			" --set node.nriSocket=/run/nri/nri.sock",
	)
	var said strings.Builder
	began := time.Now()
	for _, block := range blocks {
		shell := exec.CommandContext(s.ctx, "sh", "-ec", own.Replace(block.Script))
		shell.Dir = root
		shell.Env = append(shared.KubectlCommand(s.ctx).Env,
			"PATH="+strings.Join([]string{
				filepath.Dir(shared.KubectlCommand(s.ctx).Path), filepath.Dir(helm()), filepath.Join(root, "_output"),
				"/usr/bin:/bin",
			}, string(os.PathListSeparator)),
			"HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
		printed, err := shell.CombinedOutput()
		t.Logf("%s\n%s%s", block, block.Script, printed)
		if err != nil {
			s.showPods()
			t.Fatalf("%s: %v", block, err)
		}
		said.Write(printed)
	}
	pages.EndWalk(t, "the chart has come, run a pod with two GPUs, and gone", began)
	pair := regexp.MustCompile(`\ngpu-(?:0,gpu-1\ngpu-0\ngpu-1|2,gpu-3\ngpu-2\ngpu-3|4,gpu-5\ngpu-4\ngpu-5|` +
		`6,gpu-7\ngpu-6\ngpu-7)\n`)
	if !pair.MatchString(strings.ReplaceAll(said.String(), "\r", "")) {
		t.Errorf("the container does not see a pair and nothing else:\n%s", &said)
	}
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}
