// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Reason is why what a container carries in the runtime does not count, as a label of a metric.
type Reason string

// The reasons.
const (
	// Unsigned is an annotation without a signature, such as earlier releases wrote.
	Unsigned Reason = "unsigned"
	// Forged is one whose signature is not this node's for this pod and container.
	Forged Reason = "forged"
	// Unreadable is one that this node has signed and cannot read.
	Unreadable Reason = "unreadable"
	// Conflicting is one for devices that other pods hold.
	Conflicting Reason = "conflicting"
	// Missing is none at all on a container that was created with devices.
	Missing Reason = "missing"
)

// Reasons returns all of them.
func Reasons() []Reason { return []Reason{Unsigned, Forged, Unreadable, Conflicting, Missing} }

// Finding is a container whose annotation does not count.
type Finding struct {
	PodUID, Namespace, Name, Container string
	Reason                             Reason
	// Message is for the pod's owner: what is wrong, what follows, and the next step.
	Message string
}

// EncodePart returns the value of [Annotation] for a container of a pod that was granted the
// allocation.
func (c *Checkpoint) EncodePart(a Allocation, container string) (string, error) {
	info, init := partOf(a.PodInfo, container)
	part, err := deviceinfo.EncodeContainer(info, init)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked == nil {
		return "", errors.New("the checkpoint of granted devices was not read yet")
	}
	return c.key.sign(subject{a.PodUID, a.Namespace, a.Name, container}, part), nil
}

// partOf returns a container's own part of an allocation.
func partOf(pod *types.PodInfo, container string) (part types.ContainerInfo, init bool) {
	if info, running := pod.RunningContainers[container]; running {
		return info, false
	}
	info, init := pod.InitContainers[container]
	return info, init
}

// inspect returns what the containers of the pods show: the allocations of live pods that are not
// in next, and what does not count. Those of which a container has not exited come first: it uses
// its devices, while an exited one may have had others than its pod has now. Among these, the
// oldest come first.
func (c *Checkpoint) inspect(
	states map[string]RuntimeState, next map[string]*Allocation,
) (recovered []*Allocation, findings map[string]Finding) {
	findings = map[string]Finding{}
	for uid, pod := range states {
		known := next[uid]
		if known == nil && !pod.Live && !c.pods.Active(uid) {
			continue
		}
		found := &Allocation{
			PodUID: uid, Namespace: pod.Namespace, Name: pod.Name, Partial: true, Signed: true,
			PodInfo: &types.PodInfo{Name: pod.Name, NodeName: c.key.node},
		}
		containers := slices.Clone(pod.Containers)
		slices.SortStableFunc(containers, compareCreation)
		for _, container := range containers {
			reason, cause := c.examine(found, known, container)
			if reason != "" {
				findings[container.ID] = finding(uid, pod, container, reason, cause)
			}
		}
		if known == nil && len(found.PodInfo.InitContainers)+len(found.PodInfo.RunningContainers) > 0 {
			recovered = append(recovered, found)
		}
	}
	exited := func(a *Allocation) int {
		if slices.ContainsFunc(states[a.PodUID].Containers, func(c RuntimeContainer) bool {
			return !c.Exited && c.Encoded != ""
		}) {
			return 0
		}
		return 1
	}
	slices.SortFunc(recovered, func(a, b *Allocation) int {
		return cmp.Or(cmp.Compare(exited(a), exited(b)), a.Since.Compare(b.Since), cmp.Compare(a.PodUID, b.PodUID))
	})
	return recovered, findings
}

// compareCreation orders containers of one pod, so that of those of one name the last counts: of a
// container that was created again, with other devices. One that has not exited uses its devices.
// The times of creation say nothing after the node's clock was set back, so they decide last.
func compareCreation(a, b RuntimeContainer) int {
	exited := func(c RuntimeContainer) int {
		if c.Exited {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(exited(a), exited(b)), cmp.Compare(a.Attempt, b.Attempt), a.Created.Compare(b.Created))
}

// examine adds to found what the container carries. It returns why that does not count, if so.
// known is what the pod was granted by the checkpoint, or nil: then what containers carry need not
// count, and one that is older than the key cannot be distinguished from a forged one.
func (c *Checkpoint) examine(found, known *Allocation, container RuntimeContainer) (reason Reason, cause error) {
	if known != nil && known.Adopted {
		return "", nil // its containers carry nothing, and nothing that they carry would count
	}
	old := known != nil && container.Created.Before(c.key.Since)
	if container.Encoded == "" {
		if known == nil || old {
			return "", nil
		}
		if part, _ := partOf(known.PodInfo, container.Name); len(part.AllocateFrom) == 0 {
			return "", nil
		}
		return Missing, errors.New("it has none")
	}
	owner := subject{found.PodUID, found.Namespace, found.Name, container.Name}
	part, init, err := c.key.verify(owner, container.Encoded)
	switch {
	case err == nil:
	case old || confirmsUnsigned(known, container.Name, container.Encoded):
		return "", nil
	case errors.Is(err, errUnsigned):
		return Unsigned, err
	case errors.Is(err, errForged):
		return Forged, err
	default:
		return Unreadable, err
	}
	if found.Since.IsZero() || container.Created.Before(found.Since) {
		found.Since = container.Created
	}
	list := &found.PodInfo.RunningContainers
	if init {
		list = &found.PodInfo.InitContainers
	}
	if *list == nil {
		*list = map[string]types.ContainerInfo{}
	}
	(*list)[container.Name] = part
	return "", nil
}

func finding(uid string, pod RuntimeState, container RuntimeContainer, reason Reason, cause error) Finding {
	what := fmt.Sprintf("container %q in the container runtime: annotation %s: %v. ", container.Name, Annotation, cause)
	switch reason {
	case Missing:
		what += "kubecri created it with devices, so the runtime has dropped what kubecri added, as when it restores " +
			"a checkpoint image; the container may lack its devices. Delete the pod to have it created again"
	case Conflicting:
		what += "It does not count, so that the container uses devices that are counted for others. Delete the pod"
	default:
		what += "It does not count, and no device is held because of it. If the pod was granted devices before this " +
			"node's checkpoint or key was lost, delete the pod; otherwise the annotation is from its image"
	}
	return Finding{
		PodUID: uid, Namespace: pod.Namespace, Name: pod.Name, Container: container.Name, Reason: reason, Message: what,
	}
}

// addRecovered adds allocations that came back from the runtime to next, except those of devices
// that others there hold.
func (c *Checkpoint) addRecovered(
	ctx context.Context, recovered []*Allocation, states map[string]RuntimeState, next map[string]*Allocation,
	findings map[string]Finding,
) {
	logger := klog.FromContext(ctx)
	for _, a := range recovered {
		if conflict := FindConflict(a.Holds(), next, c.recoverable); conflict != nil {
			for _, container := range states[a.PodUID].Containers {
				if container.Encoded != "" {
					findings[container.ID] = finding(a.PodUID, states[a.PodUID], container, Conflicting, conflict)
				}
			}
			continue
		}
		next[a.PodUID] = a
		logger.Info("A pod holds devices that were not in the checkpoint", logkey.Pod, a.Pod(), logkey.PodUID, a.PodUID)
	}
}

// recoverable is the capacity for allocations that come back from the runtime. What is not known
// now, as plugins have not reported, or must not be used, as it is unhealthy, may be held all the
// same.
func (c *Checkpoint) recoverable(name types.ResourceName) (quantity int64, known bool) {
	if c.inventory != nil {
		quantity, known = c.inventory.Grantable(name)
	}
	if quantity <= 0 {
		quantity = math.MaxInt64
	}
	return quantity, known
}

// report reports each finding once in the life of its container.
func (c *Checkpoint) report(ctx context.Context, findings map[string]Finding) {
	maps.DeleteFunc(c.reported, func(id string, reason Reason) bool { return findings[id].Reason != reason })
	for _, id := range slices.Sorted(maps.Keys(findings)) {
		found := findings[id]
		if c.reported[id] == found.Reason {
			continue
		}
		c.reported[id] = found.Reason
		klog.FromContext(ctx).Info("Ignoring the annotation of a container in the runtime", logkey.Container, id,
			logkey.PodUID, found.PodUID, logkey.Pod, found.Namespace+"/"+found.Name, logkey.Reason, found.Message)
		if c.observer != nil {
			c.observer.Found(found)
		}
	}
}

// complete returns the partial allocation of a pod with what the pod wants for all the containers
// that it lacks.
func complete(partial, wanted *Allocation) *Allocation {
	pod := *wanted.PodInfo
	pod.InitContainers, pod.RunningContainers = maps.Clone(pod.InitContainers), maps.Clone(pod.RunningContainers)
	for _, list := range []struct {
		to          *map[string]types.ContainerInfo
		from, other map[string]types.ContainerInfo
	}{
		{&pod.InitContainers, partial.PodInfo.InitContainers, pod.RunningContainers},
		{&pod.RunningContainers, partial.PodInfo.RunningContainers, pod.InitContainers},
	} {
		for name, info := range list.from {
			if *list.to == nil {
				*list.to = map[string]types.ContainerInfo{}
			}
			(*list.to)[name] = info
			delete(list.other, name)
		}
	}
	whole := *wanted
	whole.Since, whole.PodInfo = partial.Since, &pod
	return &whole
}
