// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// held is who holds how much of a resource of a GPU: by ID, resource and UID.
type held map[string]int64

func (h held) add(id, resource, uid string, quantity int64) {
	if quantity > 0 {
		h[id+" "+resource+" "+uid] += quantity
	}
}

// scheduler returns what the scheduler has of a node and the pods that are bound to it.
func scheduler(t *testing.T, node *corev1.Node, pods []*corev1.Pod) held {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(node); err != nil {
		t.Fatal(err)
	}
	set := allocation.New(klog.Background(), nil,
		allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)})
	view, err := nodestate.New(set, corelisters.NewNodeLister(indexer), clock.RealClock{}).View(t.Context(), node, pods)
	if err != nil {
		t.Fatal(err)
	}
	all := held{}
	for _, r := range view.Devices.Resources() {
		path, err := resource.ParsePath(r.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, holder := range view.Holders {
			all.add(path.DeviceID(), path.Resource(), holder.UID, holder.Holds(r.Name))
		}
	}
	return all
}

// Nodes of random groups, or of none, which the plugin then puts into groups; and pods of random
// allocations, of which some are for other nodes, other pods or no pod.
func TestTheHoldersAreThoseOfTheScheduler(t *testing.T) {
	compared := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		info := types.NewNodeInfoWithName("n")
		groups := random.IntN(3)
		var paths []string // as the plugin has them
		for i := range 1 + random.IntN(8) {
			path := fmt.Sprintf("gpu/g%d", i)
			switch groups {
			case 0:
				paths = append(paths, fmt.Sprintf("gpugrp1/0/gpugrp0/g%d/%s", i, path))
			case 1:
				path = fmt.Sprintf("gpugrp0/%d/%s", i/2, path)
				paths = append(paths, "gpugrp1/0/"+path)
			default:
				path = fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/%s", i/4, i/2, path)
				paths = append(paths, path)
			}
			for name, quantity := range map[string]int64{"/cards": 1, "/memory": 100} {
				types.AddGroupResource(info.Capacity, path+name, quantity)
				types.AddGroupResource(info.Allocatable, path+name, quantity)
			}
		}
		value, err := deviceinfo.EncodeNode(info)
		if err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "n", ResourceVersion: "1", Annotations: map[string]string{deviceinfo.Annotation: value},
		}}
		var pods []*corev1.Pod
		for i := range random.IntN(12) {
			pods = append(pods, randomPod(t, random, fmt.Sprint("p", i), paths))
		}
		want, got := scheduler(t, node, pods), held{}
		for _, d := range devices.NewNode(node, pods, time.Time{}).Devices {
			if d.Health != devices.Healthy {
				t.Errorf("seed %d: %s is %s", seed, d.Path, d.Health)
			}
			for _, holder := range d.Holders {
				for name, quantity := range holder.Resources {
					got.add(d.ID, name, holder.UID, quantity)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: the holders (-scheduler +kubectl device):\n%s", seed, diff)
		}
		compared += len(want)
	}
	if compared < 100 {
		t.Errorf("only %d holdings were compared", compared)
	}
}

// randomPod returns a pod that is bound to the node, with one container that has some of one of the
// GPUs.
func randomPod(t *testing.T, random *rand.Rand, name string, paths []string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: apitypes.UID(name), ResourceVersion: "1",
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main"}}},
	}
	container := types.NewContainerInfo()
	for kind, quantity := range map[string]int64{"cards": random.Int64N(2), "memory": random.Int64N(100)} {
		from := types.ResourceName(types.DeviceGroupPrefix + "/" + paths[random.IntN(len(paths))] + "/" + kind)
		container.DevRequests[from], container.AllocateFrom[from] = quantity, from
	}
	info := types.NewPodInfo()
	info.Name, info.NodeName, info.RunningContainers["main"] = name, "n", *container
	value, err := deviceinfo.EncodePod(info)
	if err != nil {
		t.Fatal(err)
	}
	switch random.IntN(8) {
	case 0:
		value = strings.Replace(value, `"nodename":"n"`, `"nodename":"m"`, 1)
	case 1:
		value = strings.Replace(value, `"podname":"p`, `"podname":"q`, 1)
	case 2:
		value = value[1:]
	case 3:
		value = strings.Replace(value, `"nodename":"n",`, "", 1)
	}
	pod.Annotations[deviceinfo.Annotation] = value
	return pod
}
