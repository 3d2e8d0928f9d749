// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// requestsOf returns an annotation of that many bytes or a little more that requests devices in
// containers which the pod does not have.
func requestsOf(size int) string {
	var text strings.Builder
	text.WriteString(`{"runningcontainer":{`)
	for i := 0; text.Len() < size-40; i++ {
		fmt.Fprintf(&text, `"c%d":{"requests":{"alpha/grpresource/gpu/a/cards":1}},`, i)
	}
	text.WriteString(`"main":{"requests":{"alpha/grpresource/gpu/a/cards":1}}}}`)
	return text.String()
}

func TestAnAnnotationThatTheSchedulerDoesNotReadIsNotDecoded(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = plain
	large := map[string]string{deviceinfo.Annotation: requestsOf(228 << 10)}
	raw := createRequest(t, "u", "api", large, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
	})
	_, err := f.CreateContainer(context.Background(), raw)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "32768") {
		t.Fatal(err)
	}
	decoded := testing.AllocsPerRun(3, func() {
		if _, err := deviceinfo.DecodePod(large[deviceinfo.Annotation]); err != nil {
			t.Fatal(err)
		}
	})
	refused := testing.AllocsPerRun(3, func() { _, _ = f.CreateContainer(context.Background(), raw) })
	if refused*10 > decoded {
		t.Errorf("a refusal makes %v allocations, and decoding the annotation %v", refused, decoded)
	}
}

// countedReads is a runtime that counts how often an image was read.
type countedReads int

// Image implements Images.
func (c *countedReads) Image(context.Context, *runtimeapi.ImageSpec) (images.Image, error) {
	*c++
	return images.Image{}, nil
}

func TestAPodThatWasRefusedBeforeIsRefusedWithoutItsImage(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = plain
	read := new(countedReads)
	f.Images = read
	for range 3 {
		_, err := f.create(t, "u", "main", "api", map[string]string{deviceinfo.Annotation: "{"})
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatal(err)
		}
	}
	if *read != 1 || len(f.outcomes) != 3 {
		t.Errorf("the image was read %d times, outcomes %v", *read, f.outcomes)
	}
}

func TestAnAllocationMayBeLongerThanRequests(t *testing.T) {
	long := `{"runningcontainer":{"main":{"allocatefrom":{"a":"b"}}}` +
		strings.Repeat(" ", podrequest.MaxRequestBytes) + "}"
	if _, err := decodeOnce(map[string]string{deviceinfo.Annotation: long})(); err != nil {
		t.Error(err)
	}
}

func TestALongAnnotationThatOnlyNamesAnAllocationIsRefusedOnce(t *testing.T) {
	padding := strings.Repeat(" ", podrequest.MaxRequestBytes)
	for name, annotation := range map[string]string{
		"a container that is allocated nothing": `{"runningcontainer":{"main":{"allocatefrom":{}}}` + padding + "}",
		"an unknown field":                      `{"allocatefrom":1` + padding + "}",
		"a container of that name":              `{"runningcontainer":{"allocatefrom":{}}` + padding + "}",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.pods["u"] = plain
			create := func() error {
				_, err := f.create(t, "u", "main", "api", map[string]string{deviceinfo.Annotation: annotation})
				return err
			}
			want := create()
			if status.Code(want) != codes.FailedPrecondition || !strings.Contains(want.Error(), "32768") {
				t.Fatal(want)
			}
			delete(f.pods, "u") // so that a decision would fail in another way
			if err := create(); fmt.Sprint(err) != fmt.Sprint(want) {
				t.Errorf("once more: %v, want %v", err, want)
			}
		})
	}
}

func TestARefusalForDevicesIsNotDecidedAgainUntilTheInventoryChanges(t *testing.T) {
	for name, test := range map[string]struct {
		containers map[string][]types.ResourceName
		says       string
	}{
		"a device that is not here": {
			map[string][]types.ResourceName{"main": {"resource/group/gpu/9/cards"}}, "is not on node",
		},
		"a device that is unhealthy": {
			map[string][]types.ResourceName{"main": {"resource/group/gpu/2/cards"}}, "unhealthy",
		},
		"a container without its device": {map[string][]types.ResourceName{"side": {card0}}, "gives it no device"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.pods["u"] = requesting
			changing := &changingInventory{Devices: f.Devices, changed: make(chan struct{})}
			f.Devices = changing
			raw := createRequest(t, "u", "api", allocation(t, "pod-u", "node-1", test.containers),
				&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}})
			_, want := f.CreateContainer(context.Background(), raw)
			if status.Code(want) != codes.FailedPrecondition || !strings.Contains(want.Error(), test.says) {
				t.Fatal(want)
			}
			delete(f.pods, "u") // so that a decision would fail in another way
			if _, err := f.CreateContainer(context.Background(), raw); fmt.Sprint(err) != fmt.Sprint(want) {
				t.Errorf("once more: %v, want %v", err, want)
			}
			close(changing.changed)
			if _, err := f.CreateContainer(context.Background(), raw); status.Code(err) != codes.Unavailable {
				t.Errorf("with another inventory: %v", err)
			}
		})
	}
}

// countedGrants counts how often it was decided whether a pod is granted something.
type countedGrants struct {
	Grants
	decided int
}

// Grant implements Grants.
func (c *countedGrants) Grant(ctx context.Context, wanted grants.Allocation, capacity grants.Capacity) (
	grants.Allocation, error,
) {
	c.decided++
	return c.Grants.Grant(ctx, wanted, capacity)
}

// Its decision finds that the holder has left. The kubelet tries all containers of a pod at once,
// and the pod again after ten seconds.
func TestAPodWhoseDeviceAnotherPodHoldsIsDecidedOnceForAllItsContainersAndAgainWhenItIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		counted := &countedGrants{Grants: f.Admission.Grants}
		f.Admission.Grants = counted
		f.pods["a"], f.pods["b"] = requesting, requesting
		same := map[string][]types.ResourceName{"main": {card0}}
		if _, err := f.create(t, "a", "main", "api", allocation(t, "pod-a", "node-1", same)); err != nil {
			t.Fatal(err)
		}
		second := allocation(t, "pod-b", "node-1", same)
		for try := range 2 {
			counted.decided = 0
			for _, container := range []string{"first", "log", "main", "side"} {
				_, err := f.create(t, "b", container, "api", second)
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "default/pod-a") {
					t.Errorf("try %d, container %s: %v", try, container, err)
				}
			}
			if counted.decided != 1 {
				t.Errorf("try %d: it was decided %d times", try, counted.decided)
			}
			time.Sleep(10 * time.Second)
		}
		delete(f.live, "a")
		if _, err := f.create(t, "b", "main", "api", second); err != nil {
			t.Errorf("when the holder is gone: %v", err)
		}
	})
}

// changingInventory has an inventory that a test declares changed.
type changingInventory struct {
	Devices
	changed chan struct{}
}

// Inventory implements Devices.
func (c *changingInventory) Inventory() (*plugins.Inventory, <-chan struct{}) {
	now, _ := c.Devices.Inventory()
	return now, c.changed
}

func TestARepeatedRefusalIsNotDecidedAgainUntilTheAnnotationChanges(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = plain
	raw := func(annotation string) []byte {
		return createRequest(t, "u", "api", map[string]string{deviceinfo.Annotation: annotation},
			&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}})
	}
	first := raw(requestsOf(30 << 10))
	_, want := f.CreateContainer(context.Background(), first)
	if status.Code(want) != codes.FailedPrecondition {
		t.Fatal(want)
	}
	delete(f.pods, "u") // so that a decision would fail in another way
	if _, err := f.CreateContainer(context.Background(), first); fmt.Sprint(err) != fmt.Sprint(want) {
		t.Errorf("once more: %v, want %v", err, want)
	}
	if _, err := f.CreateContainer(context.Background(), raw("{")); status.Code(err) != codes.Unavailable {
		t.Errorf("with another annotation: %v", err)
	}
	annotations := map[string]string{deviceinfo.Annotation: requestsOf(30 << 10)}
	if _, err := f.create(t, "v", "main", "api", annotations); status.Code(err) != codes.Unavailable {
		t.Errorf("another pod with that annotation: %v", err)
	}
}

// An allocation can be longer than requests, and is decoded to be judged.
func TestAnAllocationThatWasRefusedIsNotDecodedAgain(t *testing.T) {
	const from = `"devrequests":{"resource/group/gpu/a/cards":1},` +
		`"allocatefrom":{"resource/group/gpu/a/cards":"resource/group/gpu/0/cards"}`
	const bound = `{"podname":"pod-u","nodename":"node-1",`
	padding := strings.Repeat(" ", 200<<10)
	for name, test := range map[string]struct {
		annotation, says string
		seals            bool
	}{
		"no device's name": {
			annotation: bound + `"runningcontainer":{"main":{"devrequests":{"a":1},"allocatefrom":{"a":"b"}}}` +
				padding + "}",
			says: "is no device resource",
		},
		"a container of two kinds": {
			annotation: bound + `"initcontainer":{"main":{` + from + `}},"runningcontainer":{"main":{` + from + `}}` +
				padding + "}",
			says: "main",
		},
		"no seal": {
			annotation: bound + `"runningcontainer":{"main":{` + from + `}}` + padding + "}",
			says:       "seal", seals: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.pods["u"] = plain
			if test.seals {
				f.withSeals(seal.Enforce, nil)
			}
			raw := createRequest(t, "u", "api", map[string]string{deviceinfo.Annotation: test.annotation},
				&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}})
			_, want := f.CreateContainer(context.Background(), raw)
			if status.Code(want) != codes.FailedPrecondition || !strings.Contains(want.Error(), test.says) {
				t.Fatal(want)
			}
			delete(f.pods, "u") // so that a decision would fail in another way
			if _, err := f.CreateContainer(context.Background(), raw); fmt.Sprint(err) != fmt.Sprint(want) {
				t.Errorf("once more: %v, want %v", err, want)
			}
		})
	}
}

func TestRefusalsOfOnePodAreLoggedAFewTimes(t *testing.T) {
	f := newFixture(t, true)
	var lines bytes.Buffer
	ctx := klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&lines))))
	for range 100 {
		_ = f.Refuse(ctx, Pod{UID: "u", Namespace: "default", Name: "loud"}, errors.New("too large"))
	}
	_ = f.Refuse(ctx, Pod{UID: "v", Namespace: "default", Name: "other"}, errors.New("too large"))
	text := lines.String()
	loud, other := strings.Count(text, "default/loud"), strings.Count(text, "default/other")
	if loud != logBurst || other != 1 {
		t.Errorf("%d lines about the one and %d about the other:\n%s", loud, other, text)
	}
	if strings.Count(text, "silentFor") != 1 {
		t.Errorf("that others are not logged is not said:\n%s", text)
	}
	if len(f.warnings) != 101 {
		t.Errorf("%d warnings", len(f.warnings)) // whose sender counts those that are equal
	}
}

func TestRefusalsAreLoggedAgainAfterAWhileAndForAnyNumberOfPods(t *testing.T) {
	r := NewRefusals()
	now := time.Now()
	for range 2 * logBurst {
		r.logs("u", now)
	}
	if log, _ := r.logs("u", now.Add(logInterval-1)); log {
		t.Error("it is logged within the interval")
	}
	if log, _ := r.logs("u", now.Add(logInterval)); !log {
		t.Error("it is not logged after the interval")
	}
	for i := range 3 * refusalEntries {
		if log, _ := r.logs(fmt.Sprint(i), now); !log {
			t.Fatal("a pod is not logged")
		}
	}
	if len(r.logged) > refusalEntries {
		t.Errorf("%d pods are remembered", len(r.logged))
	}
}
