// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	alphaapi "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is the timeout of short waits.
const timeout = 30 * time.Second

// node is a node with a kubelet and this package's server. Tests set its state before it serves,
// and then use the client.
type node struct {
	t       *testing.T
	kubelet *fakeKubelet
	options Options
	server  *Server
	conn    *grpc.ClientConn
	client  podresourcesapi.PodResourcesListerClient

	grants     []grants.Allocation
	incomplete bool // there may be other grants
	pending    fakeClaims
	pods       *fakePods
	devices    Devices
}

// Follow implements Grants.
func (n *node) Follow() (list []grants.Allocation, complete bool, changed <-chan struct{}) {
	return n.grants, !n.incomplete, nil
}

// Devices implements Source.
func (n *node) Devices() Devices { return n.devices }

// noNames knows no name.
type noNames struct{}

func (noNames) ExtendedOf(types.ResourceName) (types.ResourceName, bool) { return "", false }

// counts is a kubelet that counts the devices of one extended resource.
type counts types.ResourceName

func (c counts) KubeletCounts(extended types.ResourceName) bool {
	return extended == types.ResourceName(c)
}

// newNode returns a node with a running kubelet and a stopped server.
func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "kd") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{t: t, pods: newFakePods(nil),
		devices: Devices{Names: noNames{}}}
	n.options = Options{
		Socket: filepath.Join(dir, DirName, SocketName), Kubelet: filepath.Join(dir, "kubelet.sock"),
		Grants: n, Claims: &n.pending, Pods: n.pods, Devices: n,
	}
	n.kubelet = &fakeKubelet{t: t, socket: n.options.Kubelet}
	n.kubelet.start()
	if n.conn, err = dial(n.options.Socket); err != nil {
		t.Fatal(err)
	}
	n.client = podresourcesapi.NewPodResourcesListerClient(n.conn)
	t.Cleanup(func() { n.conn.Close(); n.kubelet.stop() })
	return n
}

// run runs the server until stop is called or the test ends.
func (n *node) run() (stop func()) {
	n.server = New(n.options)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.server.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	n.t.Cleanup(stop)
	return stop
}

// serve is run and waits until the server serves.
func (n *node) serve() (stop func()) {
	n.t.Helper()
	stop = n.run()
	n.awaitServing()
	return stop
}

func (n *node) awaitServing() {
	n.t.Helper()
	eventually(n.t, func() error { return n.server.Check(n.t.Context()) })
}

// awaitHealth waits until the server's health reports a problem.
func (n *node) awaitHealth(says string) {
	n.t.Helper()
	eventually(n.t, func() error {
		if err := n.server.Check(n.t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("health says %v, want %q", err, says)
		}
		return nil
	})
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	err := try()
	for end := time.Now().Add(timeout); err != nil; err = try() {
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// holds grants devices to the containers of an active pod.
func (n *node) holds(uid, name string, containers map[string][]string) {
	n.grants = append(n.grants, grantOf(uid, name, containers))
	n.pods.active[uid] = true
}

// claims binds a pod with an allocation to the node, which has granted it nothing.
func (n *node) claims(uid, name string, containers map[string][]string) {
	n.pending.claims = append(n.pending.claims, grantOf(uid, name, containers))
	n.pods.active[uid] = true
	n.pods.list[uid] = pods.Pod{Namespace: "default", Name: name, Allocation: "{}"}
}

// grantOf returns the grant of a pod in the namespace default.
func grantOf(uid, name string, containers map[string][]string) grants.Allocation {
	decision := types.NewPodInfo()
	for container, devices := range containers {
		info := types.NewContainerInfo()
		for i, device := range devices {
			info.AllocateFrom[types.ResourceName(fmt.Sprint("request-", i))] = types.ResourceName(device)
		}
		decision.RunningContainers[container] = *info
	}
	return grants.Allocation{PodUID: uid, Namespace: "default", Name: name, PodInfo: decision}
}

func (n *node) list() []*podresourcesapi.PodResources {
	n.t.Helper()
	answer, err := n.client.List(n.t.Context(), &podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return answer.GetPodResources()
}

func (n *node) get(name string) (*podresourcesapi.PodResources, error) {
	answer, err := n.client.Get(n.t.Context(), &podresourcesapi.GetPodResourcesRequest{
		PodNamespace: "default", PodName: name,
	})
	return answer.GetPodResources(), err
}

func (n *node) alphaList(ctx context.Context) ([]*alphaapi.PodResources, error) {
	answer, err := alphaapi.NewPodResourcesListerClient(n.conn).List(ctx, &alphaapi.ListPodResourcesRequest{})
	return answer.GetPodResources(), err
}

// fakeClaims has the claims of pods. It belongs to one call at a time.
type fakeClaims struct {
	claims  []grants.Allocation
	queried [][]string // the UIDs of each call
}

// Claimed implements Claims.
func (c *fakeClaims) Claimed(podUIDs []string, _ []grants.Allocation) []grants.Allocation {
	c.queried = append(c.queried, podUIDs)
	return slices.DeleteFunc(slices.Clone(c.claims), func(claim grants.Allocation) bool {
		return !slices.Contains(podUIDs, claim.PodUID)
	})
}

// fakePods are the pods of a node. It belongs to one call at a time.
type fakePods struct {
	active map[string]bool // the known pods, by UID, and whether they are active
	list   map[string]pods.Pod
	synced bool // the list has all pods
	// delivers changes the list after the first answer.
	delivers func()
	answers  int
}

func newFakePods(active map[string]bool) *fakePods {
	if active == nil {
		active = map[string]bool{}
	}
	return &fakePods{active: active, list: map[string]pods.Pod{}}
}

func (p *fakePods) Active(uid string) bool { return p.active[uid] }

func (p *fakePods) Get(uid string) (pods.Pod, bool) {
	_, known := p.active[uid]
	return pods.Pod{}, known
}

// Current implements Pods.
func (p *fakePods) Current() (current map[string]pods.Pod, complete bool, changed <-chan struct{}) {
	current = maps.Clone(p.list)
	p.answers++
	if p.answers > 1 || p.delivers == nil {
		return current, p.synced, nil
	}
	p.delivers()
	closed := make(chan struct{})
	close(closed)
	return current, p.synced, closed
}

// fakeKubelet serves the state that tests set.
type fakeKubelet struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	t      *testing.T
	socket string

	mu          sync.Mutex
	server      *grpc.Server
	pods        []*podresourcesapi.PodResources
	allocatable *podresourcesapi.AllocatableResourcesResponse
	failure     error
	hung        chan struct{}
}

// alphaKubelet is the same in version v1alpha1.
type alphaKubelet struct {
	alphaapi.UnimplementedPodResourcesListerServer
	*fakeKubelet
}

func (k *fakeKubelet) start() {
	k.t.Helper()
	listener, err := net.Listen("unix", k.socket)
	if err != nil {
		k.t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(k.server, k)
	alphaapi.RegisterPodResourcesListerServer(k.server, alphaKubelet{fakeKubelet: k})
	go k.server.Serve(listener) //nolint:errcheck // it ends with Stop
}

func (k *fakeKubelet) stop() {
	k.mu.Lock()
	server := k.server
	k.mu.Unlock()
	server.Stop()
}

func (k *fakeKubelet) lists(pods ...*podresourcesapi.PodResources) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = pods
}

func (k *fakeKubelet) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

// hang makes calls wait until their caller is gone, and returns a channel that is closed when a
// call waits.
func (k *fakeKubelet) hang() (called <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hung = make(chan struct{})
	return k.hung
}

func (k *fakeKubelet) List(ctx context.Context,
	_ *podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hung != nil {
		close(k.hung)
		<-ctx.Done()
	}
	return &podresourcesapi.ListPodResourcesResponse{PodResources: k.pods}, k.failure
}

func (k *fakeKubelet) Get(_ context.Context,
	request *podresourcesapi.GetPodResourcesRequest) (*podresourcesapi.GetPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.pods {
		if pod.GetName() == request.GetPodName() && pod.GetNamespace() == request.GetPodNamespace() {
			return &podresourcesapi.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	if k.failure == nil {
		return nil, fmt.Errorf("pod %s in namespace %s not found", request.GetPodName(), request.GetPodNamespace())
	}
	return nil, k.failure
}

func (k *fakeKubelet) GetAllocatableResources(context.Context,
	*podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.allocatable, k.failure
}

func (k alphaKubelet) List(context.Context,
	*alphaapi.ListPodResourcesRequest) (*alphaapi.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &alphaapi.ListPodResourcesResponse{}
	for _, pod := range k.pods {
		listed := &alphaapi.PodResources{Name: pod.GetName(), Namespace: pod.GetNamespace()}
		for _, container := range pod.GetContainers() {
			listed.Containers = append(listed.Containers, &alphaapi.ContainerResources{Name: container.GetName()})
		}
		answer.PodResources = append(answer.PodResources, listed)
	}
	return answer, k.failure
}
