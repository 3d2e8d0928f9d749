// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
	"github.com/kubedevice/kubedevice/test/kube"
)

// viewerRole is what administrators apply.
const viewerRole = "../../../deploy/rbac/kubedevice-devices-viewer.yaml"

// freePort returns a port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// serving are the arguments of a scheduler that serves its API on a port.
func serving(port int, more ...string) []string {
	return append([]string{fmt.Sprintf("--devices-secure-port=%d", port), "--bind-address=127.0.0.1"}, more...)
}

// reader reads the API as one user, of whichever scheduler answers.
type reader struct {
	*testing.T
	client *http.Client
	url    string
}

// newReader returns a reader for a user who shows a certificate, or for an anonymous one.
func newReader(t *testing.T, port int, user string, groups ...string) reader {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // kubectl verifies it, see below
	if user != "" {
		client, err := server.Client(user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(client.Config.CertData, client.Config.KeyData)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return reader{t, &http.Client{Transport: transport}, fmt.Sprintf("https://127.0.0.1:%d", port)}
}

// get returns the status and the text of an answer, as soon as there is a server.
func (r reader) get(path string) (int, string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
		if err != nil {
			r.Fatal(err)
		}
		response, err := r.client.Do(request)
		if err == nil {
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				r.Fatal(err)
			}
			return response.StatusCode, string(text)
		}
		select {
		case <-ctx.Done():
			r.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitGet reads until the answer is the one that is wanted: rights, nodes and pods reach the
// scheduler in their own time, and it bounds how often it is asked.
func awaitGet[T any](r reader, path string, want T, ignore ...cmp.Option) {
	r.Helper()
	var last string
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		status, text := r.get(path)
		var got T
		if last = text; status == http.StatusOK {
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				r.Fatal(err)
			}
			if last = cmp.Diff(want, got, ignore...); last == "" {
				return
			}
		}
	}
	r.Errorf("%s (-want +got, or the error): %s", path, last)
}

// viewer lets a user read the API.
func (c *cluster) viewer(user string) {
	c.Helper()
	text, err := os.ReadFile(viewerRole)
	if err != nil {
		c.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		c.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if _, err := c.RbacV1().ClusterRoles().Create(c.Context(), role, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(c.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	bound, err := c.As(user)
	if err != nil {
		c.Fatal(err)
	}
	if err := bound.AwaitRights(c.Context(), authorizationv1.ResourceAttributes{
		Verb: "get", Group: coordinationv1.GroupName, Resource: "leases",
	}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := errors.Join(
			c.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			c.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}),
			c.CoordinationV1().Leases(schedulerapi.Namespace).DeleteCollection(ctx, atOnce, metav1.ListOptions{}),
		); err != nil {
			c.Error(err)
		}
	})
}

// anyScheduler ignores who answers.
var anyScheduler = cmp.Options{
	cmpopts.IgnoreFields(schedulerapi.NodeList{}, "Scheduler"),
	cmpopts.IgnoreFields(schedulerapi.PodList{}, "Scheduler"),
	cmpopts.IgnoreFields(schedulerapi.Pod{}, "UID", "Since"), cmpopts.IgnoreFields(schedulerapi.Holder{}, "UID"),
}

func TestTheAPIIsForThoseWhoMayReadIt(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 1)
	c.viewer("viewer")
	port := freePort(t)
	startSchedulerWith(t, serving(port))
	c.schedule(newPod("p", 1))

	// A user who calls herself admin is in no group, and may do nothing.
	for _, user := range []string{"", "somebody", "admin"} {
		for _, path := range []string{"nodes", "pods", "server", "openapi.json", "what-is-not-there"} {
			status, text := newReader(t, port, user).get(schedulerapi.Prefix + path)
			if status != http.StatusForbidden || strings.Contains(text, "gpu") ||
				!strings.Contains(text, `"kind":"Status"`) {
				t.Errorf("user %q reads %s: status %d: %s", user, path, status, text)
			}
		}
	}
	// Questions are for the same users.
	for _, path := range []string{schedulerapi.WhyPath, schedulerapi.FitPath, schedulerapi.WhatIfPath} {
		somebody := newReader(t, port, "somebody")
		response, err := somebody.client.Post(somebody.url+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusForbidden || strings.Contains(string(text), "gpu") {
			t.Errorf("somebody asks %s: status %d: %s, %v", path, response.StatusCode, text, err)
		}
	}
	pretender := reader{t, withToken(t, "not-a-token"), newReader(t, port, "").url}
	if status, text := pretender.get(schedulerapi.NodesPath); status != http.StatusUnauthorized {
		t.Errorf("a token that is none: status %d: %s", status, text)
	}

	viewer := newReader(t, port, "viewer")
	awaitGet(viewer, schedulerapi.NodesPath, schedulerapi.NodeList{Items: []schedulerapi.Node{{
		Name: "n1", Devices: []schedulerapi.Device{{
			Path: "gpugrp1/0/gpugrp0/0/gpu/n1-gpu-0", Kind: "gpu", ID: "n1-gpu-0", Health: schedulerapi.Healthy,
			Resources: []schedulerapi.Resource{
				{Name: "cards", Allocatable: 1, Used: 1, Holders: []schedulerapi.Holder{
					{Namespace: "default", Pod: "p", Quantity: 1, Enforcement: "hardware"}}},
				{Name: "cores", Allocatable: 100, Used: 100},            // by the plugin, which knows what a card has
				{Name: "memory", Allocatable: 80 << 30, Used: 80 << 30}, // likewise
			},
		}},
	}}}, anyScheduler)
	if status, _ := viewer.get("/metrics"); status != http.StatusForbidden {
		t.Errorf("the viewer gets status %d for what is not hers", status)
	}
}

// withToken returns a client that sends a bearer token to every server.
func withToken(t *testing.T, token string) *http.Client {
	client, err := rest.HTTPClientFor(&rest.Config{
		BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestTheAPISaysWhoHasWhatAndWhereAPodFits(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.node("n2", 4)
	c.node("cpu", 0)
	c.viewer("viewer")
	port := freePort(t)
	startSchedulerWith(t, serving(port))
	c.schedule(newPod("a", 4))
	waiting := newPod("b", 2)
	waiting.Spec.NodeSelector = map[string]string{"no": "node"}
	c.await(c.create(waiting), "to be found unschedulable", kube.Unschedulable)
	c.schedule(newPod("without", 0))

	viewer := newReader(t, port, "viewer")
	all := func(i int) schedulerapi.Allocation {
		return schedulerapi.Allocation{
			Container: "main", Device: fmt.Sprintf("gpugrp1/0/gpugrp0/%d/gpu/n2-gpu-%d", i/2, i),
			Resources: map[string]int64{"cards": 1},
		}
	}
	a := schedulerapi.Pod{
		Namespace: "default", Name: "a", State: schedulerapi.Bound, Node: "n2", SchedulerName: "default-scheduler",
		Allocations: []schedulerapi.Allocation{all(0), all(1), all(2), all(3)},
	}
	b := schedulerapi.Pod{
		Namespace: "default", Name: "b", State: schedulerapi.Waiting, SchedulerName: "default-scheduler",
	}
	reason := cmpopts.IgnoreFields(schedulerapi.Pod{}, "Reason")
	awaitGet(viewer, schedulerapi.PodsPath, schedulerapi.PodList{Items: []schedulerapi.Pod{a, b}}, anyScheduler, reason)
	awaitGet(viewer, schedulerapi.PodsPath+"?node=n2", schedulerapi.PodList{Items: []schedulerapi.Pod{a}}, anyScheduler)
	awaitGet(viewer, schedulerapi.PodsPath+"?limit=1", schedulerapi.PodList{Items: []schedulerapi.Pod{a},
		Continue: "default/a"}, anyScheduler)
	awaitGet(viewer, schedulerapi.PodsPath+"?limit=1&continue=default/a",
		schedulerapi.PodList{Items: []schedulerapi.Pod{b}}, anyScheduler, reason)
	b.Verdicts = []schedulerapi.Verdict{
		{Node: "cpu", Preemptible: true, Reason: `cannot serve container "main": too few GPUs for 2 of nvidia.com/gpu`},
		{Node: "n1", Fits: true, Score: 0.5},
		{Node: "n2", Preemptible: true, Reason: "fewer than 2 free GPUs (best: 0 free of 4)"},
	}
	awaitGet(viewer, schedulerapi.PodsPath+"?namespace=default&name=b",
		schedulerapi.PodList{Items: []schedulerapi.Pod{b}}, anyScheduler, reason)

	var got schedulerapi.PodList
	_, text := viewer.get(schedulerapi.PodsPath)
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Items) != 2 ||
		!strings.Contains(got.Items[1].Reason, "didn't match Pod's node affinity") || got.Items[0].Since.IsZero() {
		t.Errorf("%v: %s", err, text)
	}
}

// An unhealthy device of a node is shown, as unhealthy.
func TestTheAPIShowsUnhealthyDevices(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	info := types.NewNodeInfoWithName("n1")
	gpu.Publish(info, gpu.Resource, listed("n1", 2))
	for name := range info.Allocatable {
		if strings.Contains(string(name), "n1-gpu-1") {
			delete(info.Allocatable, name)
		}
	}
	c.publish(info)
	port := freePort(t)
	startSchedulerWith(t, serving(port))
	device := func(i int, health schedulerapi.Health, cards, cores, memory int64) schedulerapi.Device {
		return schedulerapi.Device{
			Path: fmt.Sprintf("gpugrp1/0/gpugrp0/0/gpu/n1-gpu-%d", i), Kind: "gpu", ID: fmt.Sprintf("n1-gpu-%d", i),
			Health: health, Resources: []schedulerapi.Resource{
				{Name: "cards", Allocatable: cards}, {Name: "cores", Allocatable: cores},
				{Name: "memory", Allocatable: memory}},
		}
	}
	want := schedulerapi.NodeList{Items: []schedulerapi.Node{{Name: "n1", Devices: []schedulerapi.Device{
		device(0, schedulerapi.Healthy, 1, 100, 80<<30), device(1, schedulerapi.Unhealthy, 0, 0, 0),
	}}}}
	awaitGet(newReader(t, port, "viewer"), schedulerapi.NodesPath+"?name=n1", want, anyScheduler)
}
