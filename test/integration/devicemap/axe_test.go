// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/browser"
)

// Devices are in all states, and a pod waits. A device, a node and the pod are opened in turn.
func TestAxeFindsNothingSeriousOnTheMap(t *testing.T) {
	ctx := begin(t)
	axe := browser.ReadAxe(t, root)
	random := rand.New(rand.NewPCG(3, 3))
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 12 {
		name := fmt.Sprintf("gpu-%d", i+1)
		nodes = append(nodes, newNode(t, name, i%perNode))
		pods = append(pods, fill(t, random, name, i%perNode)...)
	}
	setTaints(t, nodes[0], cordon(4), cordon(5))
	create(ctx, t, nodes, pods)
	start(ctx, t, pods)
	wait(ctx, t, newPod("vision", "segment-frames", 2), noPair)
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 916)
	p.Await("the devices and the pod that waits",
		tile("gpu-1", 7)+` && document.querySelector('.waiting button')`)

	for _, size := range []struct {
		name          string
		width, height int64
	}{{"in a window", 1360, 916}, {"on a phone", 390, 844}} {
		for _, scheme := range []string{"light", "dark"} {
			hold := func(what string) {
				t.Helper()
				p.HoldTo(axe, what+" "+size.name+", "+scheme)
			}
			p.Do("change size and colours", chromedp.EmulateViewport(size.width, size.height), browser.Scheme(scheme))
			p.Await("all nodes", tile("gpu-1", 7)+` && !document.querySelector('.details')`)
			hold("the map")
			for what, expression := range map[string]string{
				"a device": tile("gpu-1", 4), "a node": `document.querySelector('[role=listitem] .name')`,
				"a pod that waits": `document.querySelector('.waiting button')`,
			} {
				p.Click(expression)
				p.Await(what, `document.querySelector('.details h2')`)
				hold(what)
				p.Click(`document.querySelector('.details .close')`)
				p.Await("nothing open", `!document.querySelector('.details')`)
			}
		}
	}
}
