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
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"sigs.k8s.io/yaml"

	kubectl "github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/pki"
)

// viewerRole is what administrators apply.
const viewerRole = "../../../deploy/rbac/kubedevice-devices-viewer.yaml"

// freePort returns a port that nobody listened on a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// serving are the arguments of a scheduler that serves its API on a port.
func serving(port int, more ...string) []string {
	return append([]string{fmt.Sprintf("--devices-secure-port=%d", port), "--bind-address=127.0.0.1"}, more...)
}

// reader reads the API as one user, whoever answers.
type reader struct {
	*testing.T
	client *http.Client
	url    string
}

// newReader returns a reader for a user who shows a certificate, or for an anonymous one.
func newReader(t *testing.T, port int, user string, groups ...string) reader {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // kubectl verifies it, see below
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
	ctx, cancel := context.WithTimeout(r.Context(), patience)
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

// await reads until the answer is the one that is wanted: rights, nodes and pods reach the
// scheduler in their own time, and it bounds how often it is asked.
func await[T any](r reader, path string, want T, ignore ...cmp.Option) {
	r.Helper()
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
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
		response.Body.Close() //nolint:errcheck // it is read
		if err != nil || response.StatusCode != http.StatusForbidden || strings.Contains(string(text), "gpu") {
			t.Errorf("somebody asks %s: status %d: %s, %v", path, response.StatusCode, text, err)
		}
	}
	pretender := reader{t, withToken(t, "not-a-token"), newReader(t, port, "").url}
	if status, text := pretender.get(schedulerapi.NodesPath); status != http.StatusUnauthorized {
		t.Errorf("a token that is none: status %d: %s", status, text)
	}

	viewer := newReader(t, port, "viewer")
	await(viewer, schedulerapi.NodesPath, schedulerapi.NodeList{Items: []schedulerapi.Node{{
		Name: "n1", Devices: []schedulerapi.Device{{
			Path: "gpugrp1/0/gpugrp0/0/gpu/n1-gpu-0", Kind: "gpu", ID: "n1-gpu-0", Health: schedulerapi.Healthy,
			Resources: []schedulerapi.Resource{
				{Name: "cards", Allocatable: 1, Used: 1, Holders: []schedulerapi.Holder{
					{Namespace: "default", Pod: "p", Quantity: 1}}},
				{Name: "memory", Allocatable: 80 << 30, Used: 80 << 30}, // by the plugin, which knows what a card has
			},
		}},
	}}}, anyScheduler)
	if status, _ := viewer.get("/metrics"); status != http.StatusForbidden {
		t.Errorf("the viewer gets status %d for what is not hers", status)
	}
}

// withToken returns a client that sends a bearer token to whoever answers.
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
	await(viewer, schedulerapi.PodsPath, schedulerapi.PodList{Items: []schedulerapi.Pod{a, b}}, anyScheduler, reason)
	await(viewer, schedulerapi.PodsPath+"?node=n2", schedulerapi.PodList{Items: []schedulerapi.Pod{a}}, anyScheduler)
	await(viewer, schedulerapi.PodsPath+"?limit=1", schedulerapi.PodList{Items: []schedulerapi.Pod{a},
		Continue: "default/a"}, anyScheduler)
	await(viewer, schedulerapi.PodsPath+"?limit=1&continue=default/a",
		schedulerapi.PodList{Items: []schedulerapi.Pod{b}}, anyScheduler, reason)
	b.Verdicts = []schedulerapi.Verdict{
		{Node: "cpu", Preemptible: true, Reason: `cannot serve container "main": too few GPUs for 2 of nvidia.com/gpu`},
		{Node: "n1", Fits: true, Score: 0.5},
		{Node: "n2", Preemptible: true, Reason: "fewer than 2 free GPUs (best: 0 free of 4)"},
	}
	await(viewer, schedulerapi.PodsPath+"?namespace=default&name=b",
		schedulerapi.PodList{Items: []schedulerapi.Pod{b}}, anyScheduler, reason)

	var got schedulerapi.PodList
	_, text := viewer.get(schedulerapi.PodsPath)
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Items) != 2 ||
		!strings.Contains(got.Items[1].Reason, "didn't match Pod's node affinity") || got.Items[0].Since.IsZero() {
		t.Errorf("%v: %s", err, text)
	}
}

// A device that its node has and nobody may get is shown, as unhealthy.
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
	device := func(i int, health schedulerapi.Health, cards, memory int64) schedulerapi.Device {
		return schedulerapi.Device{
			Path: fmt.Sprintf("gpugrp1/0/gpugrp0/0/gpu/n1-gpu-%d", i), Kind: "gpu", ID: fmt.Sprintf("n1-gpu-%d", i),
			Health: health, Resources: []schedulerapi.Resource{
				{Name: "cards", Allocatable: cards}, {Name: "memory", Allocatable: memory}},
		}
	}
	want := schedulerapi.NodeList{Items: []schedulerapi.Node{{Name: "n1", Devices: []schedulerapi.Device{
		device(0, schedulerapi.Healthy, 1, 80<<30), device(1, schedulerapi.Unhealthy, 0, 0),
	}}}}
	await(newReader(t, port, "viewer"), schedulerapi.NodesPath+"?name=n1", want, anyScheduler)
}

// options are those of kubectl for a user.
func (c *cluster) options(user string) kubectl.Options {
	c.Helper()
	client, err := server.Client(user)
	if err != nil {
		c.Fatal(err)
	}
	return kubectl.Options{Config: client.Config, Leases: client.CoordinationV1(), Now: time.Now}
}

// awaitConnection connects as soon as a scheduler can be found that is the one that is wanted.
func (c *cluster) awaitConnection(options kubectl.Options, is func(*kubectl.Client) bool) *kubectl.Client {
	c.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		client, err := kubectl.Connect(c.Context(), options)
		if err == nil && is(client) {
			c.Cleanup(client.Close)
			return client
		}
		if last = err; err == nil {
			last = fmt.Errorf("%+v answers", client.Server)
			client.Close()
		}
	}
	c.Fatalf("no connection: %v", last)
	return nil
}

// Of two schedulers one leads. Both answer, each says which it is; kubectl prefers the one that
// leads, and finds the other one when it is gone.
func TestLeaderAndStandbyAnswerAndSayWhichTheyAre(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.viewer("viewer")
	ports := [2]int{freePort(t), freePort(t)}
	var pair [2]*process
	for i, port := range ports {
		pair[i] = startSchedulerWith(t, serving(port, election...))
	}
	leads := func(client *kubectl.Client) bool { return client.Server.Leads }
	leader := c.awaitConnection(c.options("viewer"), leads)

	var standby int
	for i, port := range ports {
		r, path := newReader(t, port, "viewer"), schedulerapi.ServerPath
		ours := schedulerapi.Server{Instance: schedulerapi.Instance{Leads: pair[i].leads()}}
		ignored := cmpopts.IgnoreFields(schedulerapi.Server{}, "Version", "CompleteSince", "Name")
		await(r, path, ours, ignored)
		if !pair[i].leads() {
			standby = i
		} else if leader.Instance.Port != port {
			t.Errorf("kubectl finds %+v, and port %d leads", leader.Instance, port)
		}
		var nodes schedulerapi.NodeList
		_, text := r.get(schedulerapi.NodesPath)
		if err := json.Unmarshal([]byte(text), &nodes); err != nil ||
			nodes.Scheduler.Leads != pair[i].leads() || len(nodes.Items) != 1 || len(nodes.Items[0].Devices) != 2 {
			t.Errorf("port %d: %v: %+v", port, err, nodes)
		}
	}

	pair[1-standby].kill()
	next := c.awaitConnection(c.options("viewer"), leads)
	if next.Instance.Port != ports[standby] {
		t.Errorf("kubectl finds %+v after the leader is gone", next.Instance)
	}
}

func TestASchedulerThatEndsIsNoLongerPublished(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	p := startSchedulerWith(t, serving(freePort(t)))
	c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	p.terminate()
	if found, err := kubectl.Find(t.Context(), c.CoordinationV1(), time.Now()); err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A scheduler's certificate is replaced by one with another key, while it runs.
func TestAnotherCertificateIsPublished(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	dir := t.TempDir()
	replace := func() {
		authority, err := pki.NewAuthority("someone")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := authority.Server([]string{"scheduler"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"tls.crt": pair.Public, "tls.key": pair.Private} {
			if err := os.WriteFile(filepath.Join(dir, name+".new"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace()
	startSchedulerWith(t, serving(freePort(t), "--tls-cert-file="+filepath.Join(dir, "tls.crt"),
		"--tls-private-key-file="+filepath.Join(dir, "tls.key")))
	before := c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	replace()
	c.awaitConnection(c.options("viewer"), func(client *kubectl.Client) bool {
		return client.Instance.PublicKey != before.Instance.PublicKey
	})
}

func TestWithoutTheRoleTheSchedulerIsNeitherFoundNorRead(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })

	stranger := c.options("stranger")
	if _, err := kubectl.Connect(t.Context(), stranger); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "kubectl auth can-i list leases.coordination.k8s.io -n kubedevice-schedulers") {
		t.Errorf("a stranger who looks for it: %v", err)
	}
	stranger.Leases = c.CoordinationV1() // somebody has given away where it is
	if _, err := kubectl.Connect(t.Context(), stranger); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "kubedevice-devices-viewer") {
		t.Errorf("a stranger who has found it: %v", err)
	}
	writer, err := server.Client("viewer")
	if err != nil {
		t.Fatal(err)
	}
	leases := writer.CoordinationV1().Leases(schedulerapi.Namespace)
	list, err := leases.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := leases.Update(t.Context(), &list.Items[0], metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer publishes another address: %v", err)
	}
}

// Somebody else answers where the scheduler should: a server with another certificate, which asks
// for that of the client. It learns nothing about the user, who has a token and a certificate.
func TestAnImpostorGetsNoCredentials(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	options := c.options("viewer")
	c.awaitConnection(options, func(*kubectl.Client) bool { return true })

	for name, version := range map[string]uint16{"TLS 1.3": tls.VersionTLS13, "TLS 1.2": tls.VersionTLS12} {
		var connections, requests, certificates atomic.Int32
		impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			requests.Add(1)
		}))
		impostor.TLS = &tls.Config{
			MaxVersion: version, ClientAuth: tls.RequireAnyClientCert,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { connections.Add(1); return nil, nil },
			VerifyConnection: func(state tls.ConnectionState) error {
				certificates.Add(int32(len(state.PeerCertificates)))
				return nil
			},
		}
		impostor.Config.ErrorLog = log.New(io.Discard, "", 0)
		impostor.StartTLS()
		options.Config = rest.CopyConfig(options.Config)
		options.Config.BearerToken = "secret"
		options.URL = impostor.URL
		client, err := kubectl.Connect(t.Context(), options)
		if err == nil {
			client.Close()
			t.Errorf("%s: kubectl believes an impostor", name)
		} else if version == tls.VersionTLS13 && !strings.Contains(err.Error(), "no credentials were sent") {
			t.Errorf("%s: %v", name, err)
		}
		impostor.Close() // and so no handshake is under way
		if connections.Load() == 0 || requests.Load() > 0 || certificates.Load() > 0 {
			t.Errorf("%s: of %d connections, the impostor got %d requests and %d certificates", name,
				connections.Load(), requests.Load(), certificates.Load())
		}
	}
}

// localPorts is what a kubelet forwards to, for a pod that shares the machine's network.
type localPorts struct{}

func (localPorts) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, stream) }() // until either end closes
	_, err = io.Copy(stream, conn)
	return err
}

// schedulerPod creates a node of which nothing works but the kubelet's port-forward, and the pod on
// it in which kubeadm runs the scheduler of this machine.
func (c *cluster) schedulerPod() *corev1.Pod {
	c.Helper()
	ctx := c.Context()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, localPorts{}, "", "", &portforward.V4Options{}, time.Minute, time.Minute,
			portforward.SupportedProtocols)
	}))
	c.Cleanup(kubelet.Close)
	node, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp1"}},
		metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		c.Fatal(err)
	}
	pod := kube.NewPod("kube-scheduler-"+strings.ToLower(host), "busybox")
	pod.Namespace, pod.Spec.NodeName = metav1.NamespaceSystem, node.Name
	pod = c.create(pod)
	c.Cleanup(func() {
		if err := c.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, atOnce); err != nil {
			c.Error(err)
		}
	})
	return pod
}

// A scheduler that runs in a pod is reached through a port-forward, by the API server and the
// kubelet of its node, although it listens on 127.0.0.1 there.
func TestASchedulerInAPodIsReachedThroughAPortForward(t *testing.T) {
	c := newCluster(t)
	pod := c.schedulerPod()
	port := freePort(t)
	scheduler := startSchedulerWith(t, serving(port))
	options := kubectl.Options{Config: c.Config, Leases: c.CoordinationV1(), Now: time.Now}
	client := c.awaitConnection(options, func(client *kubectl.Client) bool { return client.Instance.Pod == pod.Name })
	var nodes schedulerapi.NodeList
	if err := client.Ask(t.Context(), http.MethodGet, schedulerapi.NodesPath, nil, &nodes); err != nil ||
		len(nodes.Items) != 1 || nodes.Items[0].Name != "cp1" {
		t.Errorf("%v: %+v", err, nodes)
	}

	// Somebody else listens there when the scheduler is gone, and its lease still counts.
	scheduler.kill()
	var requests atomic.Int32
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
	}))
	impostor.Config.ErrorLog = log.New(io.Discard, "", 0)
	impostor.Listener.Close()
	var err error
	if impostor.Listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		t.Fatal(err)
	}
	impostor.StartTLS()
	defer impostor.Close()
	if client, err := kubectl.Connect(t.Context(), options); err == nil {
		client.Close()
		t.Error("kubectl believes an impostor in the pod")
	} else if !strings.Contains(err.Error(), "no credentials were sent") || requests.Load() > 0 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}

	// Nobody does.
	impostor.Close()
	for tries := 0; ; tries++ { // the stream that has the reason may be cut off before it is read
		client, err := kubectl.Connect(t.Context(), options)
		if err == nil {
			client.Close()
			t.Error("nobody answers")
			break
		}
		if strings.Contains(err.Error(), "connection refused") {
			break
		}
		if tries == 10 {
			t.Errorf("it is not said that nobody listens: %v", err)
			break
		}
	}

	viewer := c.options("viewer") // who may read, and may not forward ports
	viewer.Leases = options.Leases
	right := "kubectl auth can-i create pods/" + pod.Name + " --subresource=portforward -n kube-system"
	if _, err := kubectl.Connect(t.Context(), viewer); err == nil || !strings.Contains(err.Error(), right) {
		t.Errorf("without the right to forward ports: %v", err)
	}
	if err := c.CoordinationV1().Leases(schedulerapi.Namespace).DeleteCollection(t.Context(), atOnce,
		metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// The document that is served is that of the repository.
// With the optional policy, a right to write Leases everywhere is not one to publish a key.
func TestNobodyElsePublishesAKey(t *testing.T) {
	c := newCluster(t)
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	c.readOptional("kubedevice-scheduler-addresses", &policy, &binding)
	api := c.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := errors.Join(api.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			api.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	write := func(namespace string) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "forged-"}}
		created, err := c.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{})
		if err == nil {
			err = c.CoordinationV1().Leases(namespace).Delete(t.Context(), created.Name, metav1.DeleteOptions{})
		}
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // until it is in force
		err := write(schedulerapi.Namespace)
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "only the device scheduler") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("an administrator writes a lease: %v", err)
		}
	}
	if err := write(metav1.NamespaceDefault); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	port := freePort(t)
	startSchedulerWith(t, serving(port))
	c.awaitConnection(kubectl.Options{Config: c.Config, Leases: c.CoordinationV1(), Now: time.Now},
		func(*kubectl.Client) bool { return true })
}

func TestTheAPIDescribesItself(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	client := c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	var text []byte
	if err := client.Ask(t.Context(), http.MethodGet, schedulerapi.OpenAPIPath, nil, &text); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(text, []byte(schedulerapi.OpenAPI())) {
		t.Errorf("got %s", text)
	}
}
