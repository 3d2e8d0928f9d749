// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// registry is the half of a kubelet with which plugins register, in a directory of its own.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	directory string
	server    *grpc.Server
	listening sync.WaitGroup

	mu            sync.Mutex
	plugins       map[string]*pluginAtKubelet // the last one of each resource
	registrations int
	leaves        bool // each plugin as soon as it has listed its devices
}

// pluginAtKubelet is what the kubelet has of a plugin.
type pluginAtKubelet struct {
	conn    *grpc.ClientConn
	healthy map[string]bool // by ID
	gone    bool
}

// startRegistrar serves a kubelet that knows these resources, and has given these devices.
func startRegistrar(t *testing.T, directory string, known []types.ResourceName, given ...givenEntry) *registry {
	t.Helper()
	k := &registry{directory: directory, plugins: map[string]*pluginAtKubelet{}}
	k.remember(t, known, given...)
	k.start(t)
	t.Cleanup(k.stop)
	return k
}

// givenEntry is an entry of the kubelet's checkpoint.
type givenEntry struct {
	PodUID, ContainerName string
	ResourceName          types.ResourceName
	DeviceIDs             map[string][]string
	AllocResp             []byte
}

// remember writes the kubelet's checkpoint.
func (k *registry) remember(t *testing.T, known []types.ResourceName, given ...givenEntry) {
	t.Helper()
	registered := map[types.ResourceName][]string{}
	for _, name := range known {
		registered[name] = nil
	}
	content, err := json.Marshal(map[string]any{
		"Data": map[string]any{"PodDeviceEntries": given, "RegisteredDevices": registered},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.directory, kubeletstate.CheckpointName), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start removes what is in the directory, as the kubelet does, and takes registrations.
func (k *registry) start(t *testing.T) {
	t.Helper()
	stale, err := filepath.Glob(filepath.Join(k.directory, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stale {
		os.Remove(path) //nolint:errcheck // a stand-in removes its own
	}
	listener, err := net.Listen("unix", filepath.Join(k.directory, socketName))
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(k.server, k)
	go k.server.Serve(listener)
}

// stop ends the kubelet: it leaves all plugins.
func (k *registry) stop() {
	k.server.Stop()
	k.mu.Lock()
	for name, p := range k.plugins {
		p.conn.Close()
		delete(k.plugins, name)
	}
	k.mu.Unlock()
	k.listening.Wait()
}

// Register implements the API.
func (k *registry) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := dial(filepath.Join(k.directory, request.GetEndpoint()))
	if err != nil {
		return nil, err
	}
	stream, err := pluginapi.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	p := &pluginAtKubelet{conn: conn}
	k.mu.Lock()
	k.plugins[request.GetResourceName()] = p
	k.registrations++
	k.mu.Unlock()
	k.listening.Go(func() {
		for {
			list, err := stream.Recv()
			k.mu.Lock()
			if err != nil {
				p.gone = true
				k.mu.Unlock()
				conn.Close()
				return
			}
			p.healthy = map[string]bool{}
			for _, d := range list.GetDevices() {
				p.healthy[d.GetID()] = d.GetHealth() == pluginapi.Healthy
			}
			if k.leaves {
				conn.Close()
			}
			k.mu.Unlock()
		}
	})
	return &pluginapi.Empty{}, nil
}

// has waits until the kubelet has these devices of a resource, each with its health, or with nil
// has no plugin of it.
func (k *registry) has(t *testing.T, resource types.ResourceName, want map[string]bool) {
	t.Helper()
	eventually(t, func() error {
		if diff := cmp.Diff(want, k.devices(resource)); diff != "" {
			return fmt.Errorf("%s at the kubelet (-want +got):\n%s", resource, diff)
		}
		return nil
	})
}

func (k *registry) devices(resource types.ResourceName) map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.plugins[string(resource)]; p != nil && !p.gone {
		return p.healthy
	}
	return nil
}

// allocate calls the plugin of a resource as the kubelet does, and returns what it keeps.
func (k *registry) allocate(t *testing.T, resource types.ResourceName, id string) []byte {
	t.Helper()
	k.mu.Lock()
	conn := k.plugins[string(resource)].conn
	k.mu.Unlock()
	response, err := pluginapi.NewDevicePluginClient(conn).Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := proto.Marshal(response.GetContainerResponses()[0])
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// adopter is Options.Adopt of a test.
type adopter struct {
	mu       sync.Mutex
	withheld map[types.ResourceName]string
	err      error
	calls    int
}

func (a *adopter) adopt(context.Context) (map[types.ResourceName]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	return a.withheld, a.err
}

func (a *adopter) set(withheld map[types.ResourceName]string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withheld, a.err = withheld, err
}

// standingIn lets a manager take resources over from the kubelet.
func standingIn(k *registry, a *adopter, granted ...types.ResourceName) func(*Options) {
	return func(o *Options) {
		o.KubeletDir, o.Adopt = k.directory, a.adopt
		o.KubeletResources = FromKubelet(filepath.Join(k.directory, "none"),
			filepath.Join(k.directory, kubeletstate.CheckpointName))
		o.Granted = func() map[types.ResourceName]bool {
			held := map[types.ResourceName]bool{}
			for _, name := range granted {
				held[name] = true
			}
			return held
		}
	}
}

// kubeletDirectory is one for a kubelet beside a manager's.
func kubeletDirectory(t *testing.T, directory string) string {
	t.Helper()
	path := filepath.Join(directory, "kubelet")
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAResourceThatTheKubeletKnowsIsTakenOverWhenItsPodsAreAdopted(t *testing.T) {
	directory := tempDirectory(t)
	given := givenEntry{"u", "main", qat, map[string][]string{"0": {"a"}}, []byte("a plugin's")}
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat}, given)
	a := &adopter{err: errors.New("the API server is away")}
	h := startManager(t, directory, standingIn(k, a))
	p := startPlugin(t, h.socket("p.sock"), dev("a", 1), dev("b", 1), unhealthy("c"))
	mustRegister(t, h, p, qat)
	mustRegister(t, h, startPlugin(t, h.socket("q.sock"), dev("a")), gpu)
	h.has(t, gpu, map[string]bool{"none/a": true})
	eventually(t, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.calls == 0 {
			return errors.New("nothing was adopted")
		}
		return nil
	})
	h.has(t, qat, nil)
	if h.KubeletCounts(qat) || k.devices(qat) != nil {
		t.Error("it is taken over before its pods are adopted")
	}

	const b types.ResourceName = "resource/group/numa/1/intel.com:qat/b/device"
	a.set(map[types.ResourceName]string{b: "who holds it is not certain"}, nil)
	h.takeOver(t.Context())
	k.has(t, qat, map[string]bool{"a": true, "b": true, "c": false})
	h.has(t, qat, map[string]bool{"1/a": true, "1/b": false, "none/c": false})
	if err := h.state(qat).Err; err == nil || !strings.Contains(err.Error(),
		"device b of intel.com/qat is given to nobody: who holds it is not certain") {
		t.Errorf("the state says %v", err)
	}
	if !h.KubeletCounts(qat) || h.KubeletCounts(gpu) || k.devices(gpu) != nil {
		t.Error("the kubelet should count what it knew, and nothing else")
	}
	isQAT := func(name types.ResourceName) bool { return name == qat }
	if h.KubeletServes(t.Context(), isQAT) {
		t.Error("the kubelet serves it still")
	}

	// What the kubelet gave differs from what it calls the stand-in for, and has the name of now.
	k.remember(t, []types.ResourceName{qat}, given,
		givenEntry{"v", "main", qat, map[string][]string{"-1": {"b"}}, k.allocate(t, qat, "b")},
		givenEntry{"w", "main", qat, map[string][]string{"0": {"x"}, "1": {"x"}}, nil},
		givenEntry{"x", "main", gpu, map[string][]string{"0": {"y"}}, nil})
	got, kubelets, err := h.Given()
	want := []Given{
		{"u", "main", []types.ResourceName{"resource/group/numa/1/intel.com:qat/a/device"}},
		{"w", "main", []types.ResourceName{"resource/group/numa/0-1/intel.com:qat/x/device"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" ||
		!maps.Equal(kubelets, map[types.ResourceName]bool{gpu: true}) {
		t.Errorf("given (error %v, the kubelet's own are %v) (-want +got):\n%s", err, kubelets, diff)
	}
	a.set(nil, nil)
	h.takeOver(t.Context())
	h.has(t, qat, map[string]bool{"1/a": true, "1/b": true, "none/c": false})
}

func TestAStandInComesBackAfterRestartsAndLeavesWithItsPlugin(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat})
	const held types.ResourceName = "resource/group/numa/none/intel.com:qat/b/device"
	change := standingIn(k, &adopter{}, held)
	h := startManager(t, directory, change)
	p := startPlugin(t, h.socket("p.sock"), dev("a"), unhealthy("b"))
	mustRegister(t, h, p, qat)
	// A pod of the scheduler's holds b, and the kubelet knows it by another device.
	all := map[string]bool{"a": true, "b": true}
	k.has(t, qat, all)

	k.stop()
	k.start(t)
	k.has(t, qat, all)
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": false})

	// The next process stands in before the plugin is back, and beside the first, as while it takes
	// over.
	p.Stop()
	h.has(t, qat, map[string]bool{"none/a": false, "none/b": false})
	stale := filepath.Join(k.directory, standInPrefix+"stale.sock")
	listener, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	h.stop()
	k.has(t, qat, nil)
	h = startManager(t, directory, change)
	k.has(t, qat, all)
	if _, err := os.Lstat(stale); !os.IsNotExist(err) {
		t.Errorf("the socket of a process that was killed is there: %v", err)
	}
	h.clock.Step(standInGrace)
	k.has(t, qat, nil)
	h.has(t, qat, map[string]bool{"none/a": false, "none/b": false})
	p.serve(t)
	mustRegister(t, h, p, qat)
	k.has(t, qat, all)
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": false})

	// A kubelet that has forgotten everything needs nobody to stand in.
	k.stop()
	k.remember(t, nil)
	k.start(t)
	eventually(t, func() error {
		if h.KubeletCounts(qat) {
			return errors.New("the kubelet counts still")
		}
		return nil
	})
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": false})
	if k.devices(qat) != nil {
		t.Error("somebody stands in")
	}
}

func TestAStandInDoesNotPressAKubeletThatLeavesItAgainAndAgain(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), []types.ResourceName{qat})
	k.leaves = true
	h := startManager(t, directory, standingIn(k, &adopter{}))
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	count := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.registrations
	}
	eventually(t, func() error {
		if n := count(); n < 4 {
			return fmt.Errorf("it has registered %d times", n)
		}
		return nil
	})
	before, began := count(), time.Now()
	time.Sleep(2 * standInRetry)
	// Two for each pause; without any, there are hundreds.
	if n, pauses := count()-before, int(time.Since(began)/standInRetry); n > 5*pauses {
		t.Errorf("it registered %d times in %d pauses", n, pauses)
	}
}

// Two plugins serve a resource, one of them at the kubelet, which restarts: it has no devices for a
// moment.
func TestAResourceOfAnotherPluginAtTheKubeletIsNotTakenOver(t *testing.T) {
	directory := tempDirectory(t)
	k := startRegistrar(t, kubeletDirectory(t, directory), nil)
	kubelet := &served{}
	h := startManager(t, directory, standingIn(k, &adopter{}),
		func(o *Options) { o.KubeletResources = kubelet.get })
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	kubelet.set(t, h, map[types.ResourceName]KubeletHas{qat: {Device: "b"}})
	h.has(t, qat, nil)
	kubelet.set(t, h, map[types.ResourceName]KubeletHas{qat: {}})
	h.takeOver(t.Context())
	h.clock.Step(rivalPause - time.Second)
	h.takeOver(t.Context())
	if h.KubeletCounts(qat) {
		t.Error("it is taken over at once")
	}
	k.remember(t, []types.ResourceName{qat})
	h.clock.Step(time.Second)
	h.takeOver(t.Context())
	k.has(t, qat, map[string]bool{"a": true})
	h.has(t, qat, map[string]bool{"none/a": true})
}
