// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// Source reads what the runtime sends to plugins that register. *nrilist.Source does.
type Source interface {
	List(ctx context.Context) (nrilist.List, error)
	Sandboxes(ctx context.Context) ([]nrilist.Sandbox, error)
	Container(ctx context.Context, id string) (*api.Container, error)
}

// Prepare returns why the runtime cannot be expected to register this plugin, or nil. While it is
// not registered, all containers are created as their pods want them. So where the list cannot be
// sent, Prepare ends what was created since kubecri was installed, until it can: first the
// containers that admission would not have let pass, then sandboxes in which no container runs,
// and then containers and pods, the largest first. What is older than kubecri on this node stays.
//
// A container that is created after the list was read is in the list that the runtime itself sends,
// see Synchronize: runtimes create none between their list and the registration. If that list is
// too large because of it, there is no registration, and Prepare is called again.
func (f *Front) Prepare(ctx context.Context) error {
	list, err := f.options.Source.List(ctx)
	if err != nil {
		return fmt.Errorf("what the container runtime sends to NRI plugins is not known: %w", err)
	}
	cause := list.Check()
	if cause == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Containers are ended for kubecri to be registered", logkey.Reason, cause.Error())
	since := f.options.Key.KeySince()
	f.endInadmissible(ctx, &list, since)
	f.endEmpty(ctx, &list, since)
	for {
		cause := list.Check()
		if cause == nil || !f.endLargest(ctx, &list, since) {
			return cause
		}
	}
}

// inadmissibleTimeout is how long Prepare takes to find out which containers admission would not
// have let pass. A checkpoint of grants that is lost waits for the registration itself.
const inadmissibleTimeout = 3 * time.Second

// endInadmissible ends the containers, created since then, that admission would not have let pass,
// as far as that is known in time.
func (f *Front) endInadmissible(ctx context.Context, list *nrilist.List, since time.Time) {
	known, cancel := context.WithTimeout(ctx, inadmissibleTimeout)
	defer cancel()
	list.Containers = slices.DeleteFunc(list.Containers, func(c nrilist.Container) bool {
		if c.Created.Before(since) {
			return false
		}
		described, err := f.options.Source.Container(known, c.ID)
		if err != nil {
			return false
		}
		sandbox := list.SandboxOf(c).PodSandbox
		reason, err := f.options.Admission.Inspect(known, containerOf(sandbox, described))
		return err == nil && reason != "" && f.endOne(ctx, sandbox, c.Name, reason, func() error {
			return f.options.Ender.EndContainer(ctx, c.ID)
		})
	})
}

// endEmpty ends sandboxes without a container that runs, created since then: as few as are
// necessary for the list to be sent, the largest first. Those that could not be ended stay in the
// list.
func (f *Front) endEmpty(ctx context.Context, list *nrilist.List, since time.Time) {
	occupied := map[string]bool{}
	for _, c := range list.Containers {
		occupied[c.Sandbox] = true
	}
	var empty, others []nrilist.Sandbox
	for _, s := range list.Sandboxes {
		if occupied[s.GetId()] || s.Created.Before(since) {
			others = append(others, s)
		} else {
			empty = append(empty, s)
		}
	}
	slices.SortStableFunc(empty, func(a, b nrilist.Sandbox) int { return b.Size - a.Size })
	// A check of thousands of sandboxes takes some milliseconds: one for each of them is too many.
	few := sort.Search(len(empty), func(ended int) bool {
		left := nrilist.List{Sandboxes: slices.Concat(others, empty[ended:]), Containers: list.Containers}
		return left.Sizes().Check() == nil
	})
	list.Sandboxes = slices.Concat(others, empty[few:])
	var mu sync.Mutex
	forEach(empty[:few], func(s nrilist.Sandbox) {
		reason := fmt.Sprintf("the pod's sandbox is removed: "+unsendable, s.Size)
		ended := f.endOne(ctx, s.PodSandbox, "", reason, func() error { return f.options.Ender.EndPod(ctx, s.GetId()) })
		if !ended {
			mu.Lock()
			defer mu.Unlock()
			list.Sandboxes = append(list.Sandboxes, s)
		}
	})
}

// unsendable is the end of the reason for what is ended. It takes the size.
const unsendable = "the container runtime cannot send the list of its containers to kubecri, which decides about " +
	"devices, and this takes %d bytes in the list"

// endLargest ends the largest sandbox without a container that runs, or else the largest container
// or pod, that was created since then. It reports whether there was one that could be ended.
func (f *Front) endLargest(ctx context.Context, list *nrilist.List, since time.Time) bool {
	occupied := map[string]bool{} // sandboxes
	for _, c := range list.Containers {
		occupied[c.Sandbox] = true
	}
	container, sandbox, empty := -1, -1, -1
	for i, c := range list.Containers {
		if !c.Created.Before(since) && (container < 0 || c.Size > list.Containers[container].Size) {
			container = i
		}
	}
	for i, s := range list.Sandboxes {
		if s.Created.Before(since) {
			continue
		}
		if sandbox < 0 || s.Size > list.Sandboxes[sandbox].Size {
			sandbox = i
		}
		if !occupied[s.GetId()] && (empty < 0 || s.Size > list.Sandboxes[empty].Size) {
			empty = i
		}
	}
	if empty >= 0 {
		container, sandbox = -1, empty
	}
	switch {
	case container >= 0 && (sandbox < 0 || list.Containers[container].Size >= list.Sandboxes[sandbox].Size):
		c := list.Containers[container]
		list.Containers = slices.Delete(list.Containers, container, container+1)
		reason := fmt.Sprintf("container %q is ended: "+unsendable, c.Name, c.Size)
		return f.endOne(ctx, list.SandboxOf(c).PodSandbox, c.Name, reason, func() error {
			return f.options.Ender.EndContainer(ctx, c.ID)
		})
	case sandbox >= 0:
		s := list.Sandboxes[sandbox]
		list.Sandboxes = slices.Delete(list.Sandboxes, sandbox, sandbox+1)
		list.Containers = slices.DeleteFunc(list.Containers, func(c nrilist.Container) bool {
			return c.Sandbox == s.GetId()
		})
		reason := fmt.Sprintf("the pod's sandbox is removed: "+unsendable, s.Size)
		return f.endOne(ctx, s.PodSandbox, "", reason, func() error {
			return f.options.Ender.EndPod(ctx, s.GetId())
		})
	}
	return false
}

// endOne ends a container, or a pod, and says why. It reports whether that worked.
func (f *Front) endOne(
	ctx context.Context, sandbox *api.PodSandbox, container, reason string, end func() error,
) bool {
	pod := admission.Pod{UID: sandbox.GetUid(), Namespace: sandbox.GetNamespace(), Name: sandbox.GetName()}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KRef(pod.Namespace, pod.Name),
		logkey.PodUID, pod.UID, logkey.Container, container)
	if err := end(); err != nil {
		logger.Error(err, "A container could not be ended; kubecri cannot be registered before it is")
		return false
	}
	logger.Info("A container is ended", logkey.Reason, reason)
	f.options.Events.WarnEnded(pod, reason)
	return true
}
