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

	"github.com/kubedevice/kubedevice/test/bench/figures"
	"github.com/kubedevice/kubedevice/test/browser"
)

const (
	firstLimit  = 2 * time.Second
	updateLimit = 100 * time.Millisecond
)

// It prints how fast the map is, and fails when more is drawn than is seen. "make bench-map" has
// 5,000 nodes, and limits for what a user waits for.
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
	began := time.Now()
	create(ctx, t, all, pods)
	t.Logf("%d nodes of %d GPUs, %d pods that hold some; they were made in %v", len(all), perNode, len(pods),
		time.Since(began).Round(time.Second))

	url, pid := serve(ctx, t)
	began = time.Now()
	p := open(ctx, t, url, 1360, 850)
	p.Await("the whole cluster", fmt.Sprintf(
		`document.querySelector('.state.live') && document.querySelector('.card') &&
		parseInt(document.querySelector('.found').innerText.replaceAll(",", "")) == %d`, *nodes))
	t.Logf("cold: %v from the start of the browser to all devices, while the command reads the cluster",
		time.Since(began).Round(time.Millisecond))

	p.Do("load it again", chromedp.Reload())
	p.Await("the whole cluster", `document.querySelector('.state.live') && document.querySelector('.card')`)
	p.Await("its figures", `performance.getEntriesByName("kubedevice-complete").length`)
	mark := func(name string) time.Duration {
		return milliseconds(browser.Value[float64](p,
			`performance.getEntriesByName("kubedevice-`+name+`")[0].startTime`))
	}
	t.Logf("warm: first devices are drawn after %v, the whole cluster after %v", mark("first"), mark("complete"))
	hold(t, "the first devices", mark("first"), firstLimit)

	drawn := browser.Value[int](p, `document.querySelectorAll('.card').length`)
	if drawn == 0 || drawn > 100 || drawn == *nodes {
		t.Errorf("%d nodes are drawn, want those that are seen", drawn)
	}

	updates := measureUpdates(t, p, func() {
		for round := range 20 {
			for _, i := range []int{0, 1, 2, len(all) - 1} {
				if err := annotate(ctx, newNode(t, all[i].Name, round%perNode)); err != nil {
					t.Fatal(err)
				}
			}
			p.Await("the change", tile(all[0].Name, round%perNode)+`.matches('.unhealthy')`)
		}
	})
	list(t, "updates of a few nodes, from the message to the next paint", updates)
	hold(t, "the longest update of a few nodes", updates[len(updates)-1], updateLimit)
	updates = measureUpdates(t, p, func() {
		parallel(t, len(all)/2, func(i int) error { return annotate(ctx, newNode(t, all[i].Name, 1, 2)) })
		p.Await("the last change", tile(all[0].Name, 2)+`.matches('.unhealthy')`)
	})
	list(t, fmt.Sprintf("updates while %d nodes change as fast as the API server takes it", len(all)/2), updates)
	hold(t, "the longest update of many nodes", updates[len(updates)-1], updateLimit)

	for _, size := range []string{"large", "small"} {
		if size == "small" {
			p.Click(`[...document.querySelectorAll('button')].find(b => b.innerText == "Compact")`)
			p.Await("smaller nodes", `document.querySelector('.grid.small .card')`)
		}
		measureFrames(t, p, size+" nodes: frames, 60 pixels each", 60, 300)
		measureFrames(t, p, size+" nodes: frames, from end to end in 120 steps", 0, 120)
	}
	browser.Value[bool](p, emptied)
	measureFrames(t, p, "the same page, empty: frames, from end to end in 120 steps", 0, 120)
	browser.Value[bool](p, filled)

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

	t.Logf("a search for one node is drawn after %v",
		milliseconds(browser.Value[float64](p, fmt.Sprintf(search, all[len(all)-1].Name))))
	p.Await("the node", `document.querySelectorAll('.card').length == 1`)
}

// milliseconds is the browser's unit of time.
func milliseconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Millisecond)).Round(100 * time.Microsecond)
}

// hold fails the test where limits hold and a figure is above its own.
func hold(t *testing.T, what string, is, limit time.Duration) {
	t.Helper()
	if *limits && is > limit {
		t.Errorf("%s: %v, want at most %v", what, is, limit)
	}
}

// list prints times, which are in order.
func list(t *testing.T, what string, times []time.Duration) {
	t.Helper()
	t.Logf("%s: %d, median %v, 95%% at most %v, longest %v", what, len(times), times[len(times)/2],
		times[len(times)*95/100], times[len(times)-1])
}

// timesOf returns times that an expression in JavaScript comes to, in order. There have to be some.
func timesOf(t *testing.T, p *browser.Page, expression string) (times []time.Duration) {
	t.Helper()
	for _, n := range browser.Value[[]float64](p, expression) {
		times = append(times, milliseconds(n))
	}
	if len(times) == 0 {
		t.Fatalf("%s: nothing was measured", expression)
	}
	slices.Sort(times)
	return times
}

// measureUpdates does something, and returns how long the page's updates took meanwhile, in order.
func measureUpdates(t *testing.T, p *browser.Page, do func()) []time.Duration {
	t.Helper()
	browser.Value[bool](p, `updates = []; observer = new PerformanceObserver(list => updates.push(
		...list.getEntriesByName("kubedevice-update").map(e => e.duration)));
		observer.observe({entryTypes: ["measure"]}); true`)
	do()
	return timesOf(t, p, `new Promise(done => setTimeout(() => { observer.disconnect(); done(updates) }, 500))`)
}

// measureFrames scrolls down, and prints how long the frames took, and for how long each needed a
// CPU in the page's main thread. A step of 0 pixels is one of so many to the end.
func measureFrames(t *testing.T, p *browser.Page, what string, step, frames int) {
	t.Helper()
	before := p.MainThread()
	times := timesOf(t, p, fmt.Sprintf(`new Promise(done => {
		const area = [...document.querySelectorAll('.grid')].at(-1), step = %[1]d || area.scrollHeight / %[2]d;
		const frames = [];
		area.scrollTop = 0;
		let last;
		const next = () => requestAnimationFrame(now => {
			if (last) frames.push(now - last);
			last = now;
			area.scrollTop += step;
			frames.length < %[2]d ? next() : done(frames);
		});
		next();
	})`, step, frames))
	each := (p.MainThread() - before) / time.Duration(frames)
	list(t, fmt.Sprintf("%s, %v of CPU each", what, each.Round(100*time.Microsecond)), times)
}

const (
	// emptied puts an area without nodes, as high as that of the nodes, in the place of the map.
	emptied = `(() => {
		const height = document.querySelector('.sheet').clientHeight, empty = document.createElement('div');
		document.getElementById('app').style.display = 'none';
		empty.className = 'grid';
		empty.style.height = '100%';
		empty.append(document.createElement('div'));
		empty.firstChild.style.height = height + 'px';
		document.body.append(empty);
		return true;
	})()`

	filled = `(() => {
		document.body.lastChild.remove();
		document.getElementById('app').style.display = '';
		return true;
	})()`

	// search types a word, and returns how long it took until it was drawn.
	search = `new Promise(done => {
		const input = document.querySelector('input[type=search]'), began = performance.now();
		input.value = %q;
		input.dispatchEvent(new Event('input', {bubbles: true}));
		requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
	})`
)
