// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/web"
	"github.com/kubedevice/kubedevice/test/browser"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// openMap opens the map of the cluster in Debian's Chromium, as users do on their machines.
func openMap(ctx context.Context, t *testing.T) *browser.Page {
	t.Helper()
	if _, err := web.Page(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED: \"make page\" comes first, with Node.js:", err)
	}
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	chromium, err := browser.Build(ctx, root)
	if err != nil {
		t.Fatal(err)
	}
	serving := newKubectlDevice(ctx, t).command("web", "--open=false", "--scheduler="+shared.SchedulerURL())
	serving.Stderr = os.Stderr
	out, err := serving.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := serving.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		serving.Wait() //nolint:errcheck // kubectl ends as its plugin does
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("kubectl device web prints no address: %v", lines.Err())
	}
	return browser.Open(ctx, t, chromium, lines.Text(), 1100, 700)
}

// allocatedGPUs returns the names of the GPUs that a pod's annotation says it has, in order.
func allocatedGPUs(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	names := map[string]bool{}
	for path := range allocated(t, pod) {
		segments := strings.Split(path, "/")
		names[segments[len(segments)-2]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// A device fails, a pod waits, and an answer of the map's lets it run.
func TestTheMapLetsAPodRunThatWaitsBecauseADeviceFailed(t *testing.T) {
	clustertest.OnlyInFull(t, "test/integration/devicemap has the map")
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-1", gpuPod(namespace, "trainer", perNode)))
	notebook := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On("node-2", gpuPod(namespace, "notebook", perNode/2)))
	held := allocatedGPUs(t, notebook)
	var ill string
	for i := range perNode {
		if free := fmt.Sprintf("gpu-%d", i); !slices.Contains(held, free) {
			ill = free
		}
	}
	p := openMap(ctx, t)
	const node2 = `document.querySelector('[role=listitem][aria-label^="node-2,"]')`
	tile := func(name string) string {
		return node2 + fmt.Sprintf(`.querySelector('[aria-label^="gpu %s,"]')`, name)
	}
	p.Await("both nodes", `document.querySelectorAll('.card').length == 2 &&
		`+node2+`.ariaLabel == "node-2, 4 of 8 free"`)

	// The device fails, and a pod waits for want of it.
	makeUnhealthy(t, "node-2", ill)
	p.Await("the device that fails", tile(ill)+`?.matches('.unhealthy')`)
	awaitGPUs(ctx, t, "node-2", perNode-1) // the scheduler may hear of it later than the map
	waiting := clustertest.CreatePod(ctx, t, shared.Client, gpuPod(namespace, "evaluation", perNode/2))
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to wait with a reason", kube.Unschedulable)

	// A click on the pod says why, and what would let it run.
	entry := fmt.Sprintf(`[...document.querySelectorAll('.waiting button')].find(
		b => b.innerText.startsWith("%s/evaluation"))`, namespace)
	p.Await("the pod that waits", entry)
	p.Click(entry)
	p.Await("the reasons of both nodes", `document.querySelector('.details')?.innerText.includes(
		"It fits none of 2 nodes.") && document.querySelector('.details .reasons').innerText.includes("free of 7")`)
	p.Await("the smallest change", `[...document.querySelectorAll('.details .changes button')].some(
		b => b.innerText.startsWith("end "))`)

	// What if the node of a device that is held took no more pods? What if the pod that has the
	// device ended?
	p.Click(tile(held[0]))
	choose := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.changes button')].find(b => b.innerText == %q)`, text)
	}
	p.Await("the questions about a device", choose("node-2 were cordoned?"))
	p.Click(choose("node-2 were cordoned?"))
	p.Await("that it would wait", `document.querySelector('.whatif .verdict')?.innerText ==
		"evaluation would still wait."`)
	p.Click(`document.querySelector('.whatif .close')`)
	p.Click(fmt.Sprintf(`[...document.querySelectorAll('.details .pod')].find(
		b => b.innerText.startsWith("%s/notebook"))`, namespace))
	ended := choose(namespace + "/notebook ended?")
	p.Await("the question about the pod", ended)
	p.Click(ended)
	p.Await("where the pod would go", `document.querySelector('.whatif .verdict')?.innerText.startsWith(
		"It would go to node-2, with gpu-")`)
	p.Await("its devices, lit", `document.querySelectorAll('.tile.lit').length == 4`)
	lit := browser.Value[[]string](p, `[...document.querySelectorAll('.tile.lit')].map(
		e => e.ariaLabel.match(/^gpu (gpu-[0-9])/)[1]).sort()`)
	if slices.Contains(lit, ill) {
		t.Errorf("the answer has the device that failed: %q", lit)
	}

	// It is done, and so it is.
	clustertest.DeletePod(ctx, t, shared.Client, notebook)
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to be ready", kube.Ready)
	if diff := cmp.Diff(lit, allocatedGPUs(t, waiting)); diff != "" || waiting.Spec.NodeName != "node-2" {
		t.Errorf("it is on %s (-lit +allocated): %s", waiting.Spec.NodeName, diff)
	}
	p.Await("that it waits no longer", `!`+entry+` && !document.querySelector('.whatif')`)
	p.Await("that it holds them", tile(lit[0])+fmt.Sprintf(`.ariaLabel.includes("held by %s/evaluation")`, namespace))
}
