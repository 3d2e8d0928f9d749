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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/browser"
)

const (
	fewNodes = 48
	noPair   = "0/48 nodes are available: 46 have no 2 free GPUs in one gpugrp0 (best: 1 free of 2), 2 have fewer " +
		"than 2 free GPUs (best: 1 free of 8). preemption: 0/48 nodes are available: 48 No preemption victims found."
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
	create(ctx, t, nodes, pods)
	wait(ctx, t, newPod("vision", "segment-frames", 2), noPair)
	wait(ctx, t, newPod("speech", "align-corpus", 2), noMemory)
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 850)

	p.Await("the devices of the first node, which are free", `[...Array(8).keys()].every(i =>
		document.querySelectorAll('[role=listitem][aria-label="gpu-1, 8 of 8 free"] .tile.free')[i])`)
	p.Await("the number of nodes", `document.querySelector('.found').innerText == "48 nodes, 384 devices"`)
	p.Await("the pods that wait, with reasons", `document.querySelector('aside').innerText.includes(
		"have no 2 free GPUs in one gpugrp0") && !document.querySelector('aside').innerText.includes("victims")`)
	if url := browser.Value[string](p, "location.href"); strings.Contains(url, "token") {
		t.Errorf("the key stays in the address: %s", url)
	}

	// A device fails.
	sick := newNode(t, "gpu-1", 5)
	current, err := server.Admin.CoreV1().Nodes().Get(ctx, "gpu-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current.Annotations = sick.Annotations
	if _, err := server.Admin.CoreV1().Nodes().Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Await("the device that fails", tile("gpu-1", 5)+`?.matches('.unhealthy[aria-label^="gpu gpu-5, unhealthy"]')`)
	p.Await("that it is said aloud",
		`document.querySelector('[role=log]').innerText == "gpu-5 of gpu-1 is not healthy"`)

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
		p.Click(`[...document.querySelectorAll('.chip')].find(c => c.innerText.endsWith("unhealthy"))`)
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
		p.Do("go back and select", chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.Enter))
		p.Await("what is selected", `document.querySelector('.details h2')?.innerText == "gpu-0"`)
		p.Do("close it", chromedp.KeyEvent(kb.Escape))
		p.Await("nothing selected", `!document.querySelector('.details')`)
	})
	p.Click(tile("gpu-3", 0))
	p.Await("a device with its events, and nothing searched", `document.querySelector('.details .events') &&
		document.querySelector('input[type=search]').value == ""`)
	picture(p, "map")
}
