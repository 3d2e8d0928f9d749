// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxRequests and MaxContainers bound what placing one pod costs: the number of its device
// requests, and the number of its containers that make some.
const (
	MaxRequests   = 512
	MaxContainers = 64
)

// Kind says when a container of a pod runs.
type Kind int8

// The kinds of containers. Kubernetes starts init containers one after another, each when the one
// before it has ended; a restartable init container (sidecar) is started in its turn and goes on
// running along with the rest.
const (
	Regular Kind = iota
	Sidecar
	Init
)

// Container is one container of a pod's spec.
type Container struct {
	Name string
	Kind Kind
}

// Request is the compiled device requests of one pod. It is immutable and safe for concurrent use.
type Request struct {
	// containers are those that request something: running ones by name, then init containers by
	// name.
	containers []container
	running    int      // how many of them run
	groups     []group  // of one container after another, depth first; each container's own group first
	items      []item   // of one group after another, in the same order
	signatures []string // kinds of instances that the groups ask for
	types      []string // kinds of resources that the items ask for
	pinned     bool     // an allocation was filled in before: some items have only one place to go
	rescored   bool     // some container brings scorers of its own
	needs      []need   // what the running containers need together
	conditions conditions
	digest     Digest
}

// container is one container's part of a request.
type container struct {
	name             string
	kind             Kind
	turn             int // its place in the order of the spec, among those that request something
	groupLo, groupHi int32
	itemLo, itemHi   int32
}

// group is one placeholder, or a container as a whole.
type group struct {
	signature      int32 // into Request.signatures
	parent         int32 // -1 for a container
	end            int32 // the groups below it are those between it and end
	twin           int32 // the sibling before it when that asks for exactly the same, or -1
	itemLo, itemHi int32 // its own requests
	itemEnd        int32 // its own and those below it
	needs          []need
}

// need is how much of one kind of resource a group and the groups below it ask for.
type need struct {
	typ   int32
	total int64
}

// item is one requested resource.
type item struct {
	name     types.ResourceName
	typ      int32 // into Request.types
	quantity int64
	scorer   mode               // byDefault: the node's
	pin      types.ResourceName // the resource that serves it, when that was decided before
}

// path returns the path of the request, which was parsed without an error when the request was
// compiled.
func (i *item) path() resource.Path {
	path, _ := resource.ParsePath(i.name)
	return path
}

// CompileRequest builds the request of a pod from its containers' DevRequests, Scorer and
// AllocateFrom. Names outside resource/group belong to others and are left out.
//
// spec lists the pod's containers in the order of its spec, init containers first; it says which of
// the running containers are sidecars, whose devices an init container that runs after them cannot
// share. A container that it does not name counts as regular when it is among the running ones, and
// as a last init container otherwise.
//
// A request that AllocateFrom already serves is not searched: it is checked and scored.
//
// It returns an error that names container and request when a name is not a path of levels and
// placeholders, a quantity is negative, the quantities of the pod add up to more than an int64, a
// scorer number is unknown, AllocateFrom serves something that is not requested, or there are more
// than MaxRequests or MaxContainers.
func CompileRequest(pod *types.PodInfo, spec []Container) (*Request, error) {
	c := compiler{
		req: &Request{}, signatures: map[string]int32{}, types: map[string]int32{}, known: map[typeName]int32{},
	}
	if err := c.count(pod); err != nil {
		return nil, err
	}
	turns := make(map[string]int, len(spec))
	for turn, at := range spec {
		turns[at.Name] = turn
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		kind := Regular
		turn, named := turns[name]
		if named && spec[turn].Kind == Sidecar {
			kind = Sidecar
		}
		if err := c.container(name, kind, turn, pod.RunningContainers[name]); err != nil {
			return nil, err
		}
	}
	c.req.running = len(c.req.containers)
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		turn, named := turns[name]
		if !named {
			turn = len(spec)
		}
		if err := c.container(name, Init, turn, pod.InitContainers[name]); err != nil {
			return nil, err
		}
	}
	c.finish()
	return c.req, nil
}

// Empty reports whether the pod requests nothing of the group scheduler.
func (r *Request) Empty() bool { return len(r.items) == 0 }

// Pinned reports whether some resources were chosen before. Where the request can be placed then
// depends on the names of a node's resources, and not on their shape alone.
func (r *Request) Pinned() bool { return r.pinned }

// Digest identifies what is requested, names of containers and placeholders aside.
func (r *Request) Digest() Digest { return r.digest }
