// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/browser"
)

const (
	fewNodes = 48
	noPair   = "0/48 nodes are available: 46 have no 2 free GPUs in one NVLink or PCIe group (best: 1 free of 2), 2 " +
		"have fewer than 2 free GPUs (best: 1 free of 8). preemption: 0/48 nodes are available: 48 No preemption " +
		"victims found."
	noMemory = "0/48 nodes are available: 48 have no gpu with 72 GiB of memory free (best: 64 GiB free of 80 GiB). " +
		"preemption: none."
)

// A device fails, a pod waits, the pod gets its devices; and on the way everything is found by
// pointer, keyboard, search and address.
func TestTheMapShowsADeviceThatFailsAndAPodThatWaitsUntilItIsPlaced(t *testing.T) {
	ctx := begin(t)
	random := rand.New(rand.NewPCG(7, 7))
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range fewNodes {
		name := fmt.Sprintf("gpu-%d", i+1)
		nodes = append(nodes, newNode(t, name))
		if i > 0 { // all of the first is free
			pods = append(pods, fill(t, random, name)...)
		}
	}
	setTaints(t, nodes[9], cordon(4), cordon(5), cordon(6), cordon(7))
	create(ctx, t, nodes, pods)
	start(ctx, t, pods)
	wait(ctx, t, newPod("vision", "segment-frames", 2), noPair)
	wait(ctx, t, newPod("speech", "align-corpus", 2), noMemory)
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 916)

	p.Await("the devices of the first node, which are free", `[...Array(8).keys()].every(i =>
		document.querySelectorAll('[role=listitem][aria-label="gpu-1, 8 of 8 free"] .tile.free')[i])`)
	p.Await("the number of nodes", `document.querySelector('.found').innerText == "48 nodes, 384 devices"`)
	p.Await("the pods that wait, with reasons", `document.querySelector('aside').innerText.includes(
		"have no 2 free GPUs in one NVLink or PCIe group") &&
		!document.querySelector('aside').innerText.includes("victims")`)
	if url := browser.Value[string](p, "location.href"); strings.Contains(url, "token") {
		t.Errorf("the key stays in the address: %s", url)
	}

	// A device fails.
	first := newNode(t, "gpu-1", 5)
	if err := annotate(ctx, first); err != nil {
		t.Fatal(err)
	}
	p.Await("the device that fails", tile("gpu-1", 5)+`?.matches('.unhealthy[aria-label^="gpu gpu-5, unhealthy"]')`)
	p.Await("that it is said aloud",
		`document.querySelector('[role=log]').innerText == "gpu-5 of gpu-1 is not healthy"`)

	// Devices are cordoned and tainted.
	setTaints(t, first, cordon(6), deviceinfo.DeviceTaint{
		Device: "gpu/gpu-7", Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoExecute,
	})
	if err := annotate(ctx, first); err != nil {
		t.Fatal(err)
	}
	p.Await("the cordoned device", tile("gpu-1", 6)+`.matches(
		'.free.cordoned[aria-label^="gpu gpu-6, free, cordoned,"]')`)
	p.Await("the tainted device", tile("gpu-1", 7)+`.matches(
		'.free.tainted[aria-label^="gpu gpu-7, free, tainted dedicated=training:NoExecute,"]')`)
	p.Await("how many there are", `document.querySelector('.legend').innerText.replaceAll(/\s+/g, " ").endsWith(
		"5 cordoned 1 tainted")`)
	p.Click(tile("gpu-1", 6))
	p.Await("since when it is cordoned", `document.querySelector('.details .use')?.innerText == "free, cordoned" &&
		/Taints\s+cordoned\s+3h\s+Only pods that tolerate it get the device; who has it keeps it./.test(
			document.querySelector('.details').innerText)`)
	p.Click(tile("gpu-1", 7))
	p.Await("its taint", `/Taints\s+dedicated=training:NoExecute\s+Only pods .* is evicted./.test(
		document.querySelector('.details').innerText)`)
	hover := func(event string) string {
		return fmt.Sprintf(`(%[1]s.dispatchEvent(new MouseEvent(%[2]q, {bubbles: true})), %[1]s.title)`,
			tile("gpu-1", 6), event)
	}
	p.Await("what a pointer is on", hover("mouseover")+`.startsWith("gpu gpu-6, free, cordoned,")`)
	p.Await("nothing when it goes", hover("mouseout")+` == ""`)
	p.Click(chip("cordoned"))
	p.Await("the cordoned devices alone", `document.querySelectorAll('.card').length == 2 &&
		document.querySelectorAll('.card .tile:not(.faint)').length == 5`)
	p.Click(chip("cordoned"))

	// A pod waits, and is selected.
	pod := wait(ctx, t, newPod("research", "pretrain-0", 4), noPair)
	waiting := `[...document.querySelectorAll('.waiting button')].find(
		b => b.innerText.startsWith("research/pretrain-0"))`
	p.Await("the pod that waits", waiting)
	p.Click(waiting)
	p.Await("its reason and its events", `document.querySelector('.details')?.innerText.includes("pretrain-0") &&
		document.querySelector('.details').innerText.includes("FailedScheduling")`)
	p.Await("that no scheduler answers, in words",
		`document.querySelector('.details [role=status]')?.innerText.startsWith("No scheduler answers: ")`)
	p.Await("the short reason, once", `document.querySelector('.details').innerText.split(
		"46 have no 2 free GPUs in one NVLink or PCIe group").length == 3`) // the other is its event

	// It gets its devices, which are lit.
	bind(ctx, t, pod, "gpu-1", 0, 1, 2, 3)
	p.Await("its devices, lit", tile("gpu-1", 3)+`?.matches('.whole.lit') && !`+tile("gpu-1", 4)+`.matches('.lit')`)
	p.Await("that it waits no longer", `!`+waiting)
	p.Await("its event", `document.querySelector('.details').innerText.includes("Scheduled")`)

	// The device shows its pod, the pod its devices.
	p.Click(tile("gpu-1", 2))
	p.Await("the device's pod", `document.querySelector('.details h2').innerText == "gpu-2" &&
		document.querySelector('.details .pod').innerText.startsWith("research/pretrain-0")`)
	p.Click(`document.querySelector('.details .pod')`)
	p.Await("the pod's devices", `document.querySelectorAll('.details .pod').length == 4`)

	t.Run("the address has search, filters and selection", func(t *testing.T) {
		p.Do("search", chromedp.SendKeys("input[type=search]", "gpu-1"))
		p.Click(chip("unhealthy"))
		p.Await("the only one", `document.querySelectorAll('.card').length == 1 &&
			document.querySelectorAll('.card .tile:not(.faint)').length == 4`) // those of the selected pod
		before := browser.Value[string](p, "location.search")
		p.Do("load it again", chromedp.Reload())
		p.Await("the same", `document.querySelectorAll('.card').length == 1 && document.querySelector('.details') &&
			document.querySelector('input[type=search]').value == "gpu-1"`)
		after := browser.Value[string](p, "location.search")
		if before != after || !strings.Contains(after, "q=gpu-1&show=unhealthy&pod=") {
			t.Errorf("the address was %q and is %q", before, after)
		}
	})
	t.Run("the keyboard reaches everything", func(t *testing.T) {
		p.Do("close", chromedp.Navigate(p.Base))
		p.Await("all nodes", `document.querySelectorAll('.card').length > 10`)
		focused := func(what, label string) {
			t.Helper()
			p.Await(what, fmt.Sprintf(`document.activeElement.getAttribute('aria-label')?.startsWith(%q)`, label))
		}
		p.Do("go to the search", browser.Shortcut("/"))
		focused("the search", "Search nodes")
		p.Do("go on", chromedp.Evaluate[chromedp.Void](tile("gpu-1", 0)+".focus()"), chromedp.KeyEvent(kb.ArrowRight))
		focused("the next device", "gpu gpu-1, in use, held by research/pretrain-0")
		p.Do("go to the end", chromedp.KeyEvent(kb.End))
		p.Await("the last node", `document.activeElement.closest('[role=listitem]').ariaPosInSet == "48"`)

		// Enter opens, Tab goes on, Escape closes; and the focus is where it was.
		panel := func(what string, open, title, back string) {
			t.Helper()
			p.Do("open "+what, chromedp.KeyEvent(open))
			p.Await(what, fmt.Sprintf(`document.activeElement.matches('.details h2') &&
				document.activeElement.innerText == %q`, title))
			p.Do("go on", chromedp.KeyEvent(kb.Tab))
			focused("what closes it", "Close "+title)
			p.Do("close it", chromedp.KeyEvent(kb.Escape))
			p.Await("nothing selected", `!document.querySelector('.details')`)
			p.Await("the focus where it was", back)
		}
		p.Do("go to the first device", chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight))
		panel("the device", kb.Enter, "gpu-0", tile("gpu-1", 0)+` == document.activeElement`)
		p.Do("go to its node", chromedp.KeyEvent(kb.ArrowLeft))
		panel("the node", kb.Enter, "gpu-1", `document.activeElement.matches('.name') &&
			document.activeElement.innerText == "gpu-1"`)
		p.Do("go to the pods", chromedp.KeyEvent(kb.Tab))
		// Who waits longest is first. Creation times are whole seconds: it may be either pod.
		first := browser.Value[string](p, `document.querySelector('.waiting .pod b').innerText`)
		_, name, _ := strings.Cut(first, "/")
		panel("the pod", kb.Enter, name, fmt.Sprintf(`document.activeElement.innerText.startsWith(%q)`, first))

		// From panel to panel, and back to what opened the first.
		p.Do("open the device again", chromedp.Evaluate[chromedp.Void](tile("gpu-1", 0)+".focus()"),
			chromedp.KeyEvent(kb.Enter))
		focusedHeading := func(title string) string {
			return fmt.Sprintf(`document.activeElement.matches('.details h2') &&
				document.activeElement.innerText == %q`, title)
		}
		p.Await("the device", focusedHeading("gpu-0"))
		p.Do("go to its pod", chromedp.Evaluate[chromedp.Void](`document.querySelector('.details .pod').focus()`),
			chromedp.KeyEvent(kb.Enter))
		p.Await("the pod", focusedHeading("pretrain-0"))
		p.Do("close it", chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
		p.Await("the focus where it was", `!document.querySelector('.details') &&
			`+tile("gpu-1", 0)+` == document.activeElement`)
	})
	p.Click(tile("gpu-10", 4))
	p.Await("a device with its events, and nothing searched", `document.querySelector('.details .events') &&
		document.querySelector('input[type=search]').value == ""`)
	picture(p, "map")
}
