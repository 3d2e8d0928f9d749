// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// namespaceReader lets nodes read what namespaces want.
const namespaceReader = "../../../deploy/rbac/kubedevice-namespace-reader.yaml"

// holdsFirst is the grant of a node's first GPU to a pod.
type holdsFirst struct {
	pod *corev1.Pod
	gpu gpu.GPU
}

func (h holdsFirst) Follow() ([]grants.Allocation, bool, <-chan struct{}) {
	return []grants.Allocation{{
		PodUID: string(h.pod.UID), Namespace: h.pod.Namespace, Name: h.pod.Name,
		PodInfo: &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
			h.pod.Spec.Containers[0].Name: {
				AllocateFrom: types.ResourceLocation{"r": types.ResourceName(h.gpu.Name() + "/cards")},
			},
		}},
	}}, true, nil
}

func TestAKubeletsIdentityDoesAllThatAFailedDeviceNeeds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	kubelet := register(t, "node-1")
	gpus := newGPUs(2)
	pod := kube.NewPod("holder", "busybox")
	pod.Spec.NodeName = "node-1"
	pod, err := server.Admin.CreatePod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	podsOf := server.Admin.CoreV1().Pods(pod.Namespace)
	t.Cleanup(func() {
		err := podsOf.Delete(context.Background(), pod.Name, *metav1.NewDeleteOptions(0))
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	n := &node{T: t, name: "node-1", gpus: gpus}
	load := func(context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return []pluginload.Loaded[device.Device]{{Name: "gpus", Plugin: n}}, nil
	}
	files := plugins.NewFiles("node-1", load, plugins.DefaultTiming(), nil)
	manager := plugins.New("node-1", files)
	registry := pods.NewRegistry(time.Second)
	registry.Follow(noDevices{})
	tracker := devicehealth.NewTracker(manager, holdsFirst{pod, gpus[0]}, events(nil))
	warnings := make(chan string, 100)
	controller := devicehealth.NewController(devicehealth.Options{
		Tracker: tracker, Grants: holdsFirst{pod, gpus[0]}, Pods: registry,
		Default: devicehealth.Rule{Policy: devicehealth.Evict},
		Events:  events(warnings), Metrics: uncounted{},
	}, kubelet)
	advertiser := advertise.New("node-1", manager, advertise.Options{Health: tracker})
	var running sync.WaitGroup
	for _, part := range []func(){
		func() { files.Run(ctx) }, func() { manager.Run(ctx) }, func() { tracker.Run(ctx) },
		func() { controller.Run(ctx) },
		func() { advertiser.Run(ctx, kubelet) }, func() { registry.Watch(ctx, kubelet, "node-1") },
	} {
		running.Go(part)
	}
	defer running.Wait()
	defer cancel()
	n.await("the first inventory")

	broken := newGPUs(2)
	broken[0].Unhealthy = true
	n.set(broken)
	n.await("the inventory with an unhealthy GPU")
	warned(t, warnings,
		`DeviceFailurePolicy: what namespace "default" wants is not known: namespaces "default" is forbidden`)
	await(ctx, t, "the condition of the pod", func() bool {
		now, err := podsOf.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == deviceinfo.DevicesHealthyCondition {
				return c.Status == corev1.ConditionFalse && c.Reason == "Unhealthy" && !c.LastTransitionTime.IsZero()
			}
		}
		return false
	})
	await(ctx, t, "the reason on the node", func() bool {
		list, err := deviceinfo.DecodeUnhealthy(n.now().Annotations[deviceinfo.UnhealthyAnnotation])
		return err == nil && len(list) == 1 && list[0].Device == deviceinfo.DevicePath(gpus[0].Name())
	})

	// The namespace may be read, and a kubecri that has not asked yet evicts the pod.
	letNodesReadNamespaces(t)
	await(ctx, t, "the API server to know the node's right", func() bool {
		_, err := kubelet.CoreV1().Namespaces().Get(ctx, pod.Namespace, metav1.GetOptions{})
		return err == nil
	})
	restarted := devicehealth.NewController(devicehealth.Options{
		Tracker: tracker, Grants: holdsFirst{pod, gpus[0]}, Pods: registry,
		Default: devicehealth.Rule{Policy: devicehealth.Evict},
		Events:  events(warnings), Metrics: uncounted{},
	}, kubelet)
	running.Go(func() { restarted.Run(ctx) })
	warned(t, warnings, "DeviceFailureEvicted: ")
	await(ctx, t, "the pod to be evicted", func() bool {
		now, err := podsOf.Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil
	})
}

// warned waits for a warning that begins with the text.
func warned(t *testing.T, warnings <-chan string, text string) {
	t.Helper()
	limit := time.After(timeout)
	for {
		select {
		case warning := <-warnings:
			if strings.HasPrefix(warning, text) {
				return
			}
			t.Log(warning)
		case <-limit:
			t.Fatalf("there is no warning %q", text)
		}
	}
}

// await waits until it holds.
func await(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, ctx.Err())
		}
	}
}

// letNodesReadNamespaces applies what administrators apply, until the test ends.
func letNodesReadNamespaces(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(namespaceReader)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := bytes.Cut(text, []byte("\n---\n"))
	role, binding := &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}
	if err := yaml.UnmarshalStrict(first, role); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(second, binding); err != nil {
		t.Fatal(err)
	}
	rbac := server.Admin.RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{
			rbac.ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}),
			rbac.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// noDevices are plugins that publish no extended resource.
type noDevices struct{}

// ExtendedResources implements pods.Plugins.
func (noDevices) ExtendedResources() (names []types.ResourceName, complete bool) { return nil, true }

// events are the warnings on pods. The events on nodes are dropped.
type events chan<- string

// Warn implements devicehealth.Events.
func (e events) Warn(_ *corev1.ObjectReference, reason, message string) { e <- reason + ": " + message }

// AnnounceHealth implements devicehealth.NodeEvents.
func (events) AnnounceHealth(string, string) {}

// AnnounceTaints implements devicehealth.NodeEvents.
func (events) AnnounceTaints(string, string) {}

// uncounted implements devicehealth.Metrics.
type uncounted struct{}

func (uncounted) ObserveEviction(devicehealth.Outcome) {}
