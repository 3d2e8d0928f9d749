// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// listening is a plugin that counts what it is sent.
type listening struct{ sandboxes, containers chan int }

func (l listening) Synchronize(
	_ context.Context, sandboxes []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	l.sandboxes <- len(sandboxes)
	l.containers <- len(containers)
	return nil, nil
}

func (listening) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// sendByNRI has NRI's own runtime library send objects of these sizes to a plugin, in that order.
func sendByNRI(t testing.TB, sandboxes, containers []int) error {
	t.Helper()
	var list described
	for _, size := range sandboxes {
		list.sandboxes = append(list.sandboxes, &api.PodSandbox{Id: text(size)})
	}
	for _, size := range containers {
		list.containers = append(list.containers, &api.Container{Id: text(size)})
	}
	return list.send(t)
}

// described is a list as the runtime has it.
type described struct {
	sandboxes  []*api.PodSandbox
	containers []*api.Container
}

// send has NRI's own runtime library send the list to a plugin.
func (d described) send(t testing.TB) error {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "nri.sock")
	sent := make(chan error, 2)
	runtime, err := adaptation.New("containerd", "2.4.2",
		func(ctx context.Context, send adaptation.SyncCB) (err error) {
			defer func() {
				if panicked := recover(); panicked != nil {
					err = fmt.Errorf("%w: %v", errPanics, panicked)
				}
				sent <- err
			}()
			_, err = send(ctx, d.sandboxes, d.containers)
			return err
		},
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	defer runtime.Stop()
	<-sent // to the plugins that it starts itself, of which there are none
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	plugin := listening{make(chan int, 1), make(chan int, 1)}
	served, err := stub.New(plugin, stub.WithPluginName("listening"), stub.WithPluginIdx("00"),
		stub.WithConnection(conn))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = served.Run(context.WithoutCancel(t.Context())) }) // until the connection is closed
	defer serving.Wait()
	defer conn.Close()
	if err := <-sent; err != nil {
		return err
	}
	if pods, all := <-plugin.sandboxes, <-plugin.containers; pods != len(d.sandboxes) || all != len(d.containers) {
		t.Errorf("the plugin got %d sandboxes and %d containers, want %d and %d", pods, all, len(d.sandboxes),
			len(d.containers))
	}
	return nil
}

// text returns a text that makes an object of that size, when it is its only field.
func text(size int) string {
	for length := max(0, size-5); ; length++ {
		if field(length) >= size {
			return strings.Repeat("x", length)
		}
	}
}

// sizes returns n sizes, some of which are the largest, and the others any.
func sizes(random *rand.Rand, n, largest int) []int {
	list := make([]int, n)
	share := random.Float64()
	for i := range list {
		if list[i] = largest; random.Float64() > share {
			list[i] = 16 + random.IntN(largest-15)
		}
	}
	return list
}

func TestSplitFailsExactlyWhereTheRuntimesLibraryFails(t *testing.T) {
	// The race detector makes it several times slower.
	setTimeout(t, 2*adaptation.DefaultPluginRequestTimeout)
	big, small := 1_700_000, 500
	for name, test := range map[string]struct {
		sandboxes, containers []int
		want                  error
	}{
		"a list in one message": {slices.Repeat([]int{100_000}, 5), slices.Repeat([]int{100_000}, 30), nil},
		"objects at the bound": {
			slices.Repeat([]int{MaxObject}, 12), slices.Repeat([]int{MaxObject}, 18), nil,
		},
		"eleven objects at the bound": {slices.Repeat([]int{MaxObject}, 4), slices.Repeat([]int{MaxObject}, 7), nil},
		"few and large objects":       {[]int{small, small}, []int{big, big, big}, errUnsplittable},
		"seven containers of a pod": {
			[]int{small}, slices.Repeat([]int{600 << 10}, 7), errUnsplittable,
		},
		"large containers and two sandboxes": {[]int{small, small}, slices.Repeat([]int{1 << 20}, 12), errPanics},
		"one pod with many containers":       {[]int{small}, slices.Repeat([]int{150_000}, 40), errEndless},
		"one container and many sandboxes":   {slices.Repeat([]int{150_000}, 60), []int{small}, errEndless},
	} {
		t.Run(name, func(t *testing.T) {
			if got := split(slices.Clone(test.sandboxes), slices.Clone(test.containers)); !errors.Is(got, test.want) {
				t.Errorf("split: %v, want %v", got, test.want)
			}
			err := sendByNRI(t, test.sandboxes, test.containers)
			switch test.want {
			case nil:
				if err != nil {
					t.Error("NRI:", err)
				}
			case errUnsplittable:
				if err == nil || !strings.Contains(err.Error(), "split messages") {
					t.Error("NRI:", err)
				}
			case errPanics:
				if !errors.Is(err, errPanics) {
					t.Error("NRI:", err)
				}
			case errEndless:
				if err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
					t.Error("NRI:", err)
				}
			}
		})
	}
}

func TestNoListOfObjectsWithinTheBoundIsUnsplittableOrMakesTheRuntimePanic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		sandboxes, containers := sizes(random, random.IntN(60), MaxObject), sizes(random, random.IntN(120), MaxObject)
		if err := split(sandboxes, containers); err != nil && !errors.Is(err, errEndless) {
			t.Fatalf("%v\nsandboxes %v\ncontainers %v", err, sandboxes, containers)
		}
	}
}

func TestSomeListsOfObjectsAboveTheBoundAreUnsplittableOrMakeTheRuntimePanic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	const above = MaxObject * 5 / 4
	found := map[error]int{}
	for range 20_000 {
		found[split(sizes(random, random.IntN(12), above), sizes(random, random.IntN(24), above))]++
	}
	if found[errPanics] == 0 {
		t.Errorf("no list makes the runtime panic: %v", found)
	}
	if err := split(nil, slices.Repeat([]int{Message / 8}, 8)); !errors.Is(err, errUnsplittable) {
		t.Errorf("eight objects of an eighth of a message each: %v", err)
	}
}

// randomPods returns the sizes of pods within MaxPod and their containers within MaxObject.
func randomPods(random *rand.Rand, n int) (list List) {
	for range n {
		sandbox := 1000 + random.IntN(20_000)
		left := MaxPod - sandbox
		list.Sandboxes = append(list.Sandboxes, sandbox)
		for range 1 + random.IntN(40) {
			size := min(2000+random.IntN(MaxObject), MaxObject)
			if size > left {
				break
			}
			left -= size
			list.Containers = append(list.Containers, size)
		}
	}
	return list
}

func TestListsOfPodsWithinTheBoundAreSent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 4))
	for range 200 {
		list := randomPods(random, 1+random.IntN(250))
		if err := list.Check(); err != nil {
			t.Fatalf("%d sandboxes, %d containers: %v", len(list.Sandboxes), len(list.Containers), err)
		}
	}
}

func TestAListThatIsNotSentIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		List
		want string
	}{
		"unsplittable": {List{[]int{500, 500}, []int{1_700_000, 1_700_000, 1_700_000}, 0}, "does not split"},
		"a panic": {
			List{slices.Repeat([]int{500}, 2), slices.Repeat([]int{1 << 20}, 12), 0}, "panics",
		},
		"endless": {List{[]int{500}, slices.Repeat([]int{150_000}, 40), 0}, "never gets to the end"},
		"too many bytes for the time": {
			List{slices.Repeat([]int{1000}, 110), slices.Repeat([]int{500_000}, 1100), 0}, "bytes, and at most",
		},
		"too many strings for the time": {
			List{[]int{500}, []int{500}, MaxListStrings + 1}, "other strings, and at most",
		},
	} {
		if err := test.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkList sends the list of a node whose pods have all that they may have: as long strings,
// and as the shortest ones, labels among them. A runtime waits two seconds.
func BenchmarkList(b *testing.B) {
	for _, pods := range []int{110, 250} {
		lists := map[string]described{"long": {}, "short": {}}
		long, short := lists["long"], lists["short"]
		for i := range pods {
			id := fmt.Sprint(i)
			long.sandboxes = append(long.sandboxes, &api.PodSandbox{Id: text(MaxPod / 4)})
			for range 3 {
				long.containers = append(long.containers, &api.Container{Id: text(MaxPod / 4)})
			}
			sandbox := &api.PodSandbox{Id: id, Labels: map[string]string{}}
			for j := range MaxStrings / 8 {
				sandbox.Labels[fmt.Sprint(j)] = ""
			}
			c := &api.Container{
				PodSandboxId: id, Labels: sandbox.Labels, Env: slices.Repeat([]string{"A="}, MaxStrings/2),
			}
			short.sandboxes, short.containers = append(short.sandboxes, sandbox), append(short.containers, c)
		}
		lists["long"], lists["short"] = long, short
		for name, list := range lists {
			b.Run(fmt.Sprintf("pods=%d/strings=%s", pods, name), func(b *testing.B) {
				for b.Loop() {
					if err := list.send(b); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// setTimeout sets how long the runtime waits for a plugin, until the test ends.
func setTimeout(t *testing.T, timeout time.Duration) {
	adaptation.SetPluginRequestTimeout(timeout)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
}
