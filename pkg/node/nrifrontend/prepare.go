// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
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
// sent, Prepare ends what was created since kubecri was installed, until it can, see chosen. What
// is older than kubecri on this node stays.
//
// Containers go on to be created meanwhile. So after each end the list is read again, and the one
// that can be sent is as old as it takes to read it. A container that is created still later is in
// the list that the runtime itself sends, see Synchronize: runtimes create none between their list
// and the registration. If that list is too large because of it, there is no registration, and
// Prepare is called again.
func (f *Frontend) Prepare(ctx context.Context) (cause error) {
	for round := range rounds {
		list, err := f.options.Source.List(ctx)
		if err != nil {
			return fmt.Errorf("what the container runtime sends to NRI plugins is not known: %w", err)
		}
		if cause = list.Check(); cause == nil {
			return nil
		}
		if round == 0 {
			klog.FromContext(ctx).Info("Containers are ended for kubecri to be registered",
				logkey.Reason, cause.Error())
		}
		endings, enough := f.chosen(ctx, list)
		if ended := f.endAll(ctx, endings); !ended || !enough {
			return cause
		}
	}
	return cause
}

// rounds is how often in a row containers are ended and the list is read again.
const rounds = 10

// ending is the end of a container, or of a sandbox with its containers.
type ending struct {
	sandbox   nrilist.Sandbox
	container nrilist.Container // without an ID for the sandbox
	size      nribound.Size     // of what is ended
	reason    string
}

// chosen returns what is ended so that the list can be sent, and whether it can be then. These are,
// in this order, and as few as necessary:
//
//   - containers and sandboxes that admission would have refused for their sizes, by themselves or
//     with the rest of their pods, the largest first;
//   - sandboxes in which no container runs, unless these alone are not the reason;
//   - all containers that would have had devices past admission, as far as that is known in time;
//   - others, the largest first.
//
// Where what is older than kubecri is the reason, only the third ones are ended.
func (f *Frontend) chosen(ctx context.Context, list nrilist.List) (endings []ending, enough bool) {
	since := f.options.Key.KeySince()
	refused := tooLarge(list, since)
	if n, enough := fewest(list, refused); enough {
		return refused[:n], true
	}
	list = without(list, refused)
	empty := emptySandboxes(list, since)
	if n, enough := fewest(list, empty); enough {
		return append(refused, empty[:n]...), true
	}
	inadmissible := f.inadmissible(ctx, list, since)
	list = without(list, inadmissible)
	largest := young(list, since)
	n, enough := fewest(list, largest)
	if !enough {
		return inadmissible, false
	}
	return slices.Concat(refused, inadmissible, largest[:n]), true
}

// fewest returns how many of the endings, in their order, are needed for the list to be sent, and
// whether they are enough.
func fewest(list nrilist.List, endings []ending) (n int, enough bool) {
	// A check of thousands of sandboxes takes some milliseconds: one for each of them is too many.
	n = sort.Search(len(endings)+1, func(n int) bool { return without(list, endings[:n]).Sizes().Check() == nil })
	return min(n, len(endings)), n <= len(endings)
}

// without returns the list after the endings.
func without(list nrilist.List, endings []ending) nrilist.List {
	sandboxes, containers := map[string]bool{}, map[string]bool{}
	for _, e := range endings {
		if e.container.ID != "" {
			containers[e.container.ID] = true
		} else {
			sandboxes[e.sandbox.GetId()] = true
		}
	}
	var left nrilist.List
	for _, s := range list.Sandboxes {
		if !sandboxes[s.GetId()] {
			left.Sandboxes = append(left.Sandboxes, s)
		}
	}
	for _, c := range list.Containers {
		if !sandboxes[c.Sandbox] && !containers[c.ID] {
			left.Containers = append(left.Containers, c)
		}
	}
	return left
}

// unsendable is the end of the reason for what is ended. It takes the size.
const unsendable = "the container runtime cannot send the list of its containers to kubecri, which decides " +
	"about devices, and this takes %v in the list"

func endOfSandbox(s nrilist.Sandbox, size nribound.Size) ending {
	return ending{sandbox: s, size: size, reason: fmt.Sprintf("the pod's sandbox is removed: "+unsendable, size)}
}

func endOfContainer(s nrilist.Sandbox, c nrilist.Container) ending {
	reason := fmt.Sprintf("container %q is ended: "+unsendable, c.Name, c.Size)
	return ending{sandbox: s, container: c, size: c.Size, reason: reason}
}

// sortBySize puts the largest first.
func sortBySize(endings []ending) {
	slices.SortStableFunc(endings, func(a, b ending) int { return b.size.Cost() - a.size.Cost() })
}

// tooLarge returns the ends of what was created since then and is refused by admission for its
// size: containers, sandboxes, and the containers of pods for the sum of them.
func tooLarge(list nrilist.List, since time.Time) (endings []ending) {
	sandboxes := map[string]nrilist.Sandbox{}
	for _, s := range list.Sandboxes {
		sandboxes[s.GetId()] = s
	}
	rest := map[string][]nrilist.Container{} // by the sandbox's ID
	for _, c := range list.Containers {
		if !c.Created.Before(since) && nribound.IsTooLarge(c.Size) {
			endings = append(endings, endOfContainer(sandboxes[c.Sandbox], c))
		} else {
			rest[c.Sandbox] = append(rest[c.Sandbox], c)
		}
	}
	for id, s := range sandboxes {
		sum := s.Size
		for _, c := range rest[id] {
			sum = sum.Plus(c.Size)
		}
		switch {
		case nribound.IsTooLarge(s.Size) && !s.Created.Before(since):
			endings = append(endings, endOfSandbox(s, sum))
		case nribound.IsPodTooLarge(sum):
			// The runtime ends the containers of a sandbox one after another.
			for _, c := range rest[id] {
				if !c.Created.Before(since) {
					endings = append(endings, endOfContainer(s, c))
				}
			}
		}
	}
	sortBySize(endings)
	return endings
}

// emptySandboxes returns the ends of sandboxes, created since then, without a container that runs,
// the largest first.
func emptySandboxes(list nrilist.List, since time.Time) (endings []ending) {
	occupied := map[string]bool{}
	for _, c := range list.Containers {
		occupied[c.Sandbox] = true
	}
	for _, s := range list.Sandboxes {
		if !occupied[s.GetId()] && !s.Created.Before(since) {
			endings = append(endings, endOfSandbox(s, s.Size))
		}
	}
	sortBySize(endings)
	return endings
}

// young returns the ends of containers and sandboxes, created since then, the largest first.
func young(list nrilist.List, since time.Time) (endings []ending) {
	for _, s := range list.Sandboxes {
		if !s.Created.Before(since) {
			endings = append(endings, endOfSandbox(s, s.Size))
		}
	}
	for _, c := range list.Containers {
		if !c.Created.Before(since) {
			endings = append(endings, endOfContainer(list.SandboxOf(c), c))
		}
	}
	sortBySize(endings)
	return endings
}

// inadmissibleTimeout is how long Prepare takes to find out which containers admission would not
// have let pass.
const inadmissibleTimeout = 3 * time.Second

// inadmissible returns the ends of the containers, created since then, that admission would not
// have let pass, as far as that is known in time.
func (f *Frontend) inadmissible(ctx context.Context, list nrilist.List, since time.Time) (endings []ending) {
	ctx, cancel := context.WithTimeout(ctx, inadmissibleTimeout)
	defer cancel()
	for _, c := range list.Containers {
		if c.Created.Before(since) {
			continue
		}
		described, err := f.options.Source.Container(ctx, c.ID)
		if err != nil {
			continue
		}
		sandbox := list.SandboxOf(c)
		reason, err := f.options.Admission.Inspect(ctx, containerOf(sandbox.PodSandbox, described))
		if err == nil && reason != "" {
			endings = append(endings, ending{sandbox, c, c.Size, reason})
		}
	}
	return endings
}

const (
	// endingTime is how long further ones are ended before the list is read again.
	endingTime = time.Second
	// containerTimeout and sandboxTimeout are how long the runtime may take to end one. A container
	// is killed by then, even if it has not ended.
	containerTimeout, sandboxTimeout = 2 * time.Second, 5 * time.Second
)

// endAll ends them, several at a time, in their order and as far as there is time. It reports
// whether one has ended. When it returns, it ends no more.
func (f *Frontend) endAll(ctx context.Context, endings []ending) bool {
	begun := time.Now()
	var ended atomic.Bool
	forEach(endings, func(e ending) {
		if ctx.Err() == nil && time.Since(begun) < endingTime && f.endOne(ctx, e) {
			ended.Store(true)
		}
	})
	return ended.Load()
}

// endOne ends a container, or a pod, and says why. It reports whether that worked.
func (f *Frontend) endOne(ctx context.Context, e ending) bool {
	pod := admission.Pod{UID: e.sandbox.GetUid(), Namespace: e.sandbox.GetNamespace(), Name: e.sandbox.GetName()}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KRef(pod.Namespace, pod.Name),
		logkey.PodUID, pod.UID, logkey.Container, e.container.Name)
	timeout, end, id := sandboxTimeout, f.options.Ender.EndPod, e.sandbox.GetId()
	if e.container.ID != "" {
		timeout, end, id = containerTimeout, f.options.Ender.EndContainer, e.container.ID
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := end(ctx, id)
	if err != nil {
		logger.Error(err, "Cannot end a container; kubecri cannot register before it has ended")
		return false
	}
	logger.Info("Ending a container", logkey.Reason, e.reason)
	f.options.Events.WarnEnded(pod, e.reason)
	return true
}
