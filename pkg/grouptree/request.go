// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxRequests and MaxContainers bound the cost of placing one pod: the number of its device
// requests, and the number of its containers with device requests.
const (
	MaxRequests   = 512
	MaxContainers = 64
)

// Kind says when a container of a pod runs.
type Kind int8

// The kinds of containers. Kubernetes starts init containers one after another, each when the one
// before it has ended; it starts a restartable init container (sidecar) in the same order, which
// keeps running along with the rest.
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
	// containers are the containers with requests: running ones by name, then init containers by
	// name.
	containers []container
	running    int      // how many of them run
	groups     []group  // of one container after another, depth first; each container's own group first
	items      []item   // of one group after another, in the same order
	signatures []string // kinds of instances that the groups request
	types      []string // kinds of resources that the items request
	pinned     bool     // the pod has an allocation: some items have only one possible place
	rescored   bool     // some container has its own scorers
	needs      []need   // of the running containers together
	// counted is how much Kubernetes counts of each kind of resource for the pod, by the number of
	// the kind. It is nil for a pod without init containers, which cannot hold more, and for one
	// whose init containers spec does not name.
	counted    []int64
	conditions conditions
	digest     Digest
}

// container is one container's part of a request.
type container struct {
	name             string
	kind             Kind
	order            int // its index in the spec, among the containers with requests
	groupLo, groupHi int32
	itemLo, itemHi   int32
}

// group is one placeholder, or a container as a whole.
type group struct {
	signature      int32 // into Request.signatures
	parent         int32 // -1 for a container
	end            int32 // the groups below it are those between it and end
	twin           int32 // the sibling before it if its requests are equal, or -1
	itemLo, itemHi int32 // its own requests
	itemEnd        int32 // its own and those below it
	different      bool  // its placeholder begins with Different
	needs          []need
}

// need is the quantity of one kind of resource that a group and the groups below it request.
type need struct {
	typ   int32
	total int64
}

// item is one requested resource.
type item struct {
	name     types.ResourceName
	typ      int32 // into Request.types
	quantity int64
	scorer   mode               // defaultMode: the node's
	pin      types.ResourceName // the resource that serves it in an earlier allocation
}

// path returns the path of the request. CompileRequest has parsed it without an error.
func (i *item) path() resource.Path {
	path, _ := resource.ParsePath(i.name)
	return path
}

// Empty reports whether the pod has no requests for the group scheduler.
func (r *Request) Empty() bool { return len(r.items) == 0 }

// Pinned reports whether the pod has an allocation for some requests. The placement then depends on
// the names of a node's resources, and not only on their shape.
func (r *Request) Pinned() bool { return r.pinned }

// Digest identifies the requests without the names of containers and placeholders.
func (r *Request) Digest() Digest { return r.digest }

// conditions are necessary conditions for a request to fit a node, see Summary.
type conditions struct {
	kinds  []kindCondition // by type of the request
	groups []groupCondition
}

// kindCondition is the need of a request for one kind of resource.
type kindCondition struct {
	largest int64 // of a single resource
	total   int64 // of all together: for the running containers, or for one init container
}

// groupCondition requires several groups with a free quantity each, or fewer with more. One
// instance may count as several groups.
type groupCondition struct {
	signature, typ   int32 // of the request
	quantity, groups int64
}
