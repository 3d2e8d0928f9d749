// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// Call is one call of a plugin's method. It is made once.
type Call struct {
	// Method is the method's name, for errors, logs and metrics.
	Method string
	// Subject is what the call is about.
	Subject Subject

	holder atomic.Int64 // index of the one that the plugin is called for

	failed       error    // why there is no answer
	failedHolder int64    // what holder was then
	hangs        *backOff // of what is to blame, while the call has not returned; guarded by Plugin.mu
	returned     bool     // after its limit; guarded by Plugin.mu
}

// Subject is what a call is about, and so what may be to blame when it fails.
type Subject struct {
	// Node is the name of the node that the plugin is called for, "" for none.
	Node string
	// Request is what a pod requests, in a call that queries whether the node can serve it. Then
	// there is a Probe of the node.
	Request Request
	Probe   Probe
	// Holders are the pods that hold devices of the node, in a call that is about these: see
	// Call.SetHolder.
	Holders []Holder
}

// Request identifies what a pod requests.
type Request struct {
	Key request.Key
	// Pod is the pod's name, for a plugin whose answer may depend on it; "" for all others.
	Pod string
}

// Holder is a pod that holds devices of a node.
type Holder struct{ UID, Pod string }

// Probe asks the plugin for a plain request on one node, in the state that the node was in when an
// earlier call was made.
type Probe interface {
	// NodeName is the node's name.
	NodeName() string
	// Query makes the call. It returns an error that the plugin returns, which is an answer, too.
	Query() error
}

// SetHolder says that the plugin is called for the holder of this index from now on. It may be
// called from the call itself.
func (c *Call) SetHolder(holder int) { c.holder.Store(int64(holder)) }

// culprit is what a failed call is blamed on.
type culprit struct {
	blamed Blamed
	// id is the request's key and pod; the node's name; or the holder's UID.
	id string
}

// suspects returns what may be to blame for a call that fails.
func (c *Call) suspects() []culprit {
	s := &c.Subject
	switch {
	case s.Probe != nil:
		return []culprit{{BlamedNode, s.Node}, {BlamedRequest, string(s.Request.Key[:]) + s.Request.Pod}}
	case len(s.Holders) > 0:
		all := make([]culprit, len(s.Holders))
		for i, holder := range s.Holders {
			all[i] = culprit{BlamedHolder, holder.UID}
		}
		return all
	case c.Method == MethodAddNode: // which is what may bring another inventory
		return []culprit{{BlamedNode, c.Method + " " + s.Node}}
	default:
		return nil
	}
}

// MethodAddNode is the method that reports a node's inventory. The caller makes a call that failed
// again by itself, after AddNodeInterval.
const MethodAddNode = "AddNode"

// accused returns what is to blame for a call that failed, if neither the node nor the plugin is.
func (c *Call) accused() culprit {
	suspects := c.suspects()
	switch {
	case len(suspects) == 0:
		return culprit{blamed: BlamedNothing}
	case len(c.Subject.Holders) > 0:
		return suspects[c.failedHolder]
	default:
		return suspects[len(suspects)-1]
	}
}

// explain says what is to blame for a failed call, why it failed, and what to do.
func (c *Call) explain(blamed Blamed) string {
	failed, advice := cause(c.failed), ""
	switch blamed {
	case BlamedRequest:
		failed, advice = "it fails for what this pod requests: "+failed, "change the request, or the plugin"
	case BlamedNode:
		failed, advice = "it fails for this node: "+failed, "check the node's devices, and the plugin"
	case BlamedHolder:
		holder := c.Subject.Holders[c.failedHolder]
		failed = fmt.Sprintf("it fails for pod %q (UID %s), which holds devices of the node: %s",
			holder.Pod, holder.UID, failed)
		advice = "delete that pod, or change the plugin"
	case BlamedPlugin:
		failed, advice = "quarantined, because it fails for plain requests too: "+failed, "change the plugin"
	}
	return fmt.Sprintf("%s: %s; it is tried again after a while; %s (see the scheduler's log)",
		c.Method, failed, advice)
}
