// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/test/browser"
)

// On a phone, panels are below the map.
func TestPanelsOpenInSightOnAPhone(t *testing.T) {
	ctx := begin(t)
	var nodes []*corev1.Node
	for i := range 12 {
		nodes = append(nodes, newNode(t, fmt.Sprintf("gpu-%d", i+1)))
	}
	create(ctx, t, nodes, nil)
	wait(ctx, t, newPod("vision", "segment-frames", 2), noPair)
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 390, 844)
	inSight := func(panel string) string {
		return fmt.Sprintf(`(({top}) => top >= 0 && top < innerHeight / 2)(
			document.querySelector(%q)?.getBoundingClientRect() ?? {})`, panel)
	}
	p.Await("the devices", tile("gpu-1", 7))
	p.Click(tile("gpu-1", 0))
	p.Await("the device, in sight", inSight(".selection h2"))
	p.Do("go back to the map", chromedp.Evaluate[chromedp.Void](`document.scrollingElement.scrollTop = 0`))
	p.Click(`[...document.querySelectorAll('.changes button')].find(b => b.innerText == "gpu-1 were cordoned?")`)
	p.Await("the answer, in sight", inSight(".whatif h2"))
	p.Click(`document.querySelector('.whatif .changes button')`)
	p.Await("the question removed", `!document.querySelector('.whatif')`)
}

// A window with few nodes is used; a search does not make its devices grow.
func TestDevicesOfSmallClustersAreLarge(t *testing.T) {
	ctx := begin(t)
	create(ctx, t, []*corev1.Node{newNode(t, "node-1"), newNode(t, "node-2")}, nil)
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 916)
	side := func() float64 {
		return browser.Value[float64](p, tile("node-1", 0)+`.getBoundingClientRect().width`)
	}
	p.Await("the devices", tile("node-2", 7))
	large := side()
	p.Do("search", chromedp.SendKeys("input[type=search]", "node-1"))
	p.Await("one node", `document.querySelectorAll('.card').length == 1`)
	searched := side()
	p.Click(`[...document.querySelectorAll('button')].find(b => b.innerText == "Compact")`)
	p.Await("smaller nodes", `document.querySelector('.grid.small .card')`)
	if compact := side(); large < 50 || searched != large || compact > 14 {
		t.Errorf("a device is %v pixels wide, %v in a search, %v in the compact view", large, searched, compact)
	}
	p.Await("no bar to scroll by", `document.querySelector('.grid').scrollHeight <=
		document.querySelector('.grid').clientHeight`)
}

// The node reports what programs use of a device that a pod shares.
func TestTheMapShowsTheMemoryThatProgramsUse(t *testing.T) {
	ctx := begin(t)
	node := newNode(t, "node-1")
	pod := holding(t, "vision", "train", "node-1", 40*gib, 1)
	create(ctx, t, []*corev1.Node{node}, []*corev1.Pod{pod})
	start(ctx, t, []*corev1.Pod{pod})
	held, err := server.Admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serve(ctx, t)
	p := open(ctx, t, url, 1360, 916)
	p.Await("the devices", tile("node-1", 7))
	p.Click(tile("node-1", 1))
	p.Await("the device, and nothing about its use", `document.querySelector('.details .pod') &&
		!document.querySelector('.details').innerText.includes("programs use")`)

	device1 := "gpugrp1/0/gpugrp0/0/gpu/gpu-1"
	node.Annotations[deviceinfo.UsageAnnotation] = deviceinfo.EncodeUsage(deviceinfo.Usage{
		Time: time.Now(), Devices: map[string]deviceinfo.DeviceUsage{device1: {
			MemoryTotal: device.Read(80 * gib), MemoryUsed: device.Read(30 * gib), Unowned: device.Read(2 * gib),
			Containers: []deviceinfo.ContainerUsage{{
				PodUID: string(held.UID), Container: "main", MemoryUsed: device.Read(28 * gib),
			}},
		}},
	}, deviceinfo.MaxUsageBytes)
	if err := annotate(ctx, node); err != nil {
		t.Fatal(err)
	}
	p.Await("what is used of it", `/Memory that programs use\s+\d+s ago\s+30 GiB of 80 GiB\s+2 GiB of it by no/.test(
		document.querySelector('.details').innerText)`)
	p.Await("what its container uses",
		`document.querySelector('.details .pod').innerText.includes("main: memory 40 GiB, uses 28 GiB")`)
	p.Click(`document.querySelector('.details .link')`)
	p.Await("what is used of the node",
		`document.querySelector('.details').innerText.includes("Memory used: 30 GiB of 80 GiB")`)
}
