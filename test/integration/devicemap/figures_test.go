// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/bench/figures"
	"github.com/kubedevice/kubedevice/test/browser"
)

// It prints how fast the map is, and fails when more is drawn than is seen. "make bench-map" has
// 5,000 nodes.
func TestFiguresOfLargeClusters(t *testing.T) {
	ctx := begin(t)
	random := rand.New(rand.NewPCG(1, 1))
	var all []*corev1.Node
	var pods []*corev1.Pod
	for i := range *nodes {
		name := fmt.Sprintf("gpu-%04d", i)
		all = append(all, newNode(t, name))
		pods = append(pods, fill(t, random, name)...)
	}
	create(ctx, t, all, pods)
	t.Logf("%d nodes of %d GPUs, %d pods that hold some", len(all), perNode, len(pods))

	url, pid := serve(ctx, t)
	began := time.Now()
	p := open(ctx, t, url, 1360, 850)
	p.Await("the whole cluster", fmt.Sprintf(
		`document.querySelector('.state.live') && document.querySelector('.card') &&
		parseInt(document.querySelector('.found').innerText.replaceAll(",", "")) == %d`, *nodes))
	t.Logf("cold: %v from the start of the browser to all devices, while the command reads the cluster",
		time.Since(began).Round(time.Millisecond))

	p.Do("load it again", chromedp.Reload())
	p.Await("the whole cluster", `document.querySelector('.state.live') && document.querySelector('.card')`)
	mark := func(name string) float64 {
		return browser.Value[float64](p, `performance.getEntriesByName("kubedevice-`+name+`")[0].startTime`)
	}
	t.Logf("warm: first devices are drawn after %.0f ms, the whole cluster after %.0f ms",
		mark("first"), mark("complete"))

	drawn := browser.Value[int](p, `document.querySelectorAll('.card').length`)
	if drawn == 0 || drawn > 100 {
		t.Errorf("%d nodes are drawn, want those that are seen", drawn)
	}

	browser.Value[int](p, `updates = []; new PerformanceObserver(list => updates.push(
		...list.getEntriesByName("kubedevice-update").map(e => e.duration))).observe({entryTypes: ["measure"]}); 0`)
	const rounds = 20
	for round := range rounds {
		for _, i := range []int{0, 1, 2, len(all) - 1} {
			changed := newNode(t, all[i].Name, round%perNode)
			current, err := server.Admin.CoreV1().Nodes().Get(ctx, changed.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			current.Annotations = changed.Annotations
			if _, err := server.Admin.CoreV1().Nodes().Update(ctx, current, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		p.Await("the change", tile(all[0].Name, round%perNode)+`.matches('.unhealthy')`)
	}
	updates := browser.Value[[]float64](p, "updates")
	if len(updates) == 0 {
		t.Fatal("no update was measured")
	}
	slices.Sort(updates)
	t.Logf("%d updates, from the message to the next paint: median %.0f ms, longest %.0f ms", len(updates),
		updates[len(updates)/2], updates[len(updates)-1])

	frames := browser.Value[[]float64](p, scroll)
	slices.Sort(frames)
	t.Logf("%d frames while it scrolls from end to end: median %.0f ms, 95%% at most %.0f ms", len(frames),
		frames[len(frames)/2], frames[len(frames)*95/100])

	memory, err := figures.MemoryOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	spent, err := figures.CPU(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the command: %d MiB resident, %.1f s of CPU since it began; the page: %.0f MiB of JavaScript's heap",
		memory.Resident>>20, spent.Seconds(), browser.Value[float64](p, `performance.memory.usedJSHeapSize`)/(1<<20))

	t.Logf("a search for one node is drawn after %.0f ms",
		browser.Value[float64](p, fmt.Sprintf(search, all[len(all)-1].Name)))
	p.Await("the node", `document.querySelectorAll('.card').length == 1`)
}

// scroll scrolls through all nodes in 120 steps, and returns how long each frame took.
const scroll = `new Promise(done => {
	const grid = document.querySelector('.grid'), step = grid.scrollHeight / 120, frames = [];
	let last = performance.now();
	const next = () => requestAnimationFrame(now => {
		frames.push(now - last);
		last = now;
		grid.scrollTop += step;
		frames.length < 120 ? next() : done(frames);
	});
	next();
})`

// search types a word, and returns how long it took until it was drawn.
const search = `new Promise(done => {
	const input = document.querySelector('input[type=search]'), began = performance.now();
	input.value = %q;
	input.dispatchEvent(new Event('input', {bubbles: true}));
	requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})`
