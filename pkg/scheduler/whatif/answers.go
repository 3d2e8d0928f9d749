// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// Why answers why a pod waits. This method and the others return the API server's errors: NotFound
// for a missing pod, BadRequest for an invalid question, Timeout for too little time.
func (e *Engine) Why(ctx context.Context, request schedulerapi.WhyRequest) (*schedulerapi.Why, error) {
	var why *schedulerapi.Why
	err := e.answer(ctx, request.Within, func(b *budget) error {
		pod, err := e.waiting(request.Pod)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			why = &schedulerapi.Why{Pod: request.Pod, Node: pod.Spec.NodeName}
			return nil
		}
		sim, err := e.newSimulation(b)
		if err != nil {
			return err
		}
		c, err := sim.cycle(ctx, pod)
		if err != nil {
			return err
		}
		if why, err = c.why(ctx); err == nil {
			why.Mistakes = c.mistakes()
		}
		return err
	})
	return why, err
}

// Fit answers where the scheduler would place pods now.
func (e *Engine) Fit(ctx context.Context, request schedulerapi.FitRequest) (*schedulerapi.Placements, error) {
	return e.WhatIf(ctx, schedulerapi.WhatIfRequest{FitRequest: request})
}

// WhatIf answers where the scheduler would place pods after changes.
func (e *Engine) WhatIf(
	ctx context.Context, request schedulerapi.WhatIfRequest,
) (*schedulerapi.Placements, error) {
	var placements *schedulerapi.Placements
	err := e.answer(ctx, request.Within, func(b *budget) error {
		pods, err := e.podsOf(&request)
		if err != nil {
			return err
		}
		sim, err := e.newSimulation(b)
		if err != nil {
			return err
		}
		if request.Pod == nil {
			sim.manifest = &request.FitRequest
		}
		for _, change := range request.Changes {
			if err := sim.change(ctx, change); err != nil {
				return err
			}
		}
		placements, err = sim.place(ctx, pods)
		return err
	})
	return placements, err
}

// answer answers a question within its time, in milliseconds.
func (e *Engine) answer(ctx context.Context, within int64, question func(*budget) error) error {
	if within < 0 || within > schedulerapi.MaxWithin {
		return apierrors.NewBadRequest(fmt.Sprintf("within is %d ms: use up to %d", within, schedulerapi.MaxWithin))
	}
	limit := time.Duration(cmp.Or(within, schedulerapi.DefaultWithin)) * time.Millisecond
	began := time.Now()
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	end, err := e.begin(waiting)
	if err != nil {
		return err
	}
	b := &budget{ctx: ctx, deadline: began.Add(limit), engine: e, began: time.Now()}
	defer func() { // after a panic too
		worked := time.Since(b.began)
		go func() { // the answer does not wait for the rest
			defer end()
			e.throttle(worked)
		}()
	}()
	err = question(b)
	if errors.Is(err, errOver) {
		return apierrors.NewTimeoutError(fmt.Sprintf("there is no answer within %v: allow more time", limit), 0)
	}
	return err
}

// maxReplicated is how many bytes all replicas of a template may have together, as JSON. A placed
// pod takes up to some twenty times as many, until the answer.
const maxReplicated = 8 << 20

// queriedPods are the pods of a question.
type queriedPods struct {
	count int

	waiting *v1.Pod // the only one; nil if they are replicas

	engine  *Engine
	replica *schedulerapi.FitRequest // of which they are replicas
}

// pod returns the pod with an index. Each call makes a new pod if no such pod exists.
func (q queriedPods) pod(i int) *v1.Pod {
	if q.waiting != nil {
		return q.waiting
	}
	return q.engine.replica(q.replica, i)
}

// podsOf returns the pods of a question, in their order.
func (e *Engine) podsOf(request *schedulerapi.WhatIfRequest) (queriedPods, error) {
	replicas := int(max(request.Replicas, 1))
	switch {
	case request.Replicas < 0 || replicas > schedulerapi.MaxReplicas:
		return queriedPods{}, apierrors.NewBadRequest(fmt.Sprintf("replicas is %d: use up to %d", request.Replicas,
			schedulerapi.MaxReplicas))
	case len(request.Changes) > schedulerapi.MaxChanges:
		return queriedPods{}, apierrors.NewBadRequest(fmt.Sprintf("%d changes are too many: use up to %d",
			len(request.Changes), schedulerapi.MaxChanges))
	case request.Pod != nil && len(request.Template.Spec.Containers) > 0:
		return queriedPods{}, apierrors.NewBadRequest("the question has a pod and a template: use one of them")
	case request.Pod != nil:
		pod, err := e.waiting(*request.Pod)
		if err == nil && pod.Spec.NodeName != "" {
			err = apierrors.NewConflict(v1.Resource("pods"), request.Pod.String(),
				fmt.Errorf("the pod is bound to node %q already", pod.Spec.NodeName))
		}
		return queriedPods{count: 1, waiting: pod}, err
	case len(request.Template.Spec.Containers) == 0:
		return queriedPods{}, apierrors.NewBadRequest("the question has no pod and no template with containers: " +
			"add one of them")
	}
	if err := checkTemplate(&request.Template, replicas); err != nil {
		return queriedPods{}, apierrors.NewBadRequest(err.Error())
	}
	return queriedPods{count: replicas, engine: e, replica: &request.FitRequest}, nil
}

// checkTemplate returns an error for a template that is too large for so many replicas.
func checkTemplate(template *v1.PodTemplateSpec, replicas int) error {
	spec := &template.Spec
	containers := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers)
	if err := request.CheckSize(containers, template.Annotations[deviceinfo.Annotation]); err != nil {
		return fmt.Errorf("the template is too large: %w", err)
	}
	text, err := json.Marshal(template)
	if err != nil {
		return fmt.Errorf("measure the template: %w", err)
	}
	if replicas > 1 && len(text) > maxReplicated/replicas {
		return fmt.Errorf("the template has %d bytes, and %d replicas may have %d together: use fewer replicas",
			len(text), replicas, maxReplicated)
	}
	return nil
}

// place places pods one after another, until one fits no node.
func (sim *simulation) place(ctx context.Context, pods queriedPods) (*schedulerapi.Placements, error) {
	all := &schedulerapi.Placements{Replicas: int32(pods.count)}
	for i := range pods.count {
		c, err := sim.cycleOf(ctx, pods, i)
		if err == nil && i == 0 { // replicas have the same
			all.Mistakes = c.mistakes()
		}
		var placed *schedulerapi.Placement
		switch {
		case err != nil:
		case len(c.fits) == 0:
			all.Why, err = c.why(ctx)
			return all, err
		default:
			placed, err = c.place(ctx)
		}
		if errors.Is(err, errOver) && all.Placed > 0 {
			all.Incomplete = true
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all.Pods = append(all.Pods, *placed)
		all.Placed++
	}
	all.Fits = true
	return all, nil
}

// cycleOf runs the cycle of one of the pods. It makes the pod only if there is time for it.
func (sim *simulation) cycleOf(ctx context.Context, pods queriedPods, i int) (*cycle, error) {
	if err := sim.budget.step(); err != nil {
		return nil, err
	}
	return sim.cycle(ctx, pods.pod(i))
}

// why explains why a pod waits.
func (c *cycle) why(ctx context.Context) (*schedulerapi.Why, error) {
	why := &schedulerapi.Why{
		Pod:   schedulerapi.PodName{Namespace: c.pod.Namespace, Name: c.pod.Name},
		Nodes: len(c.simulation.states.Nodes),
		Fits:  nodeNames(c.fits),
	}
	var gates []string
	for _, gate := range c.pod.Spec.SchedulingGates {
		gates = append(gates, gate.Name)
	}
	switch {
	case len(gates) > 0:
		why.Problem = "it has scheduling gates: " + strings.Join(gates, ", ")
	case c.rejected != nil:
		why.Problem = c.rejected.Message()
	}
	why.Reasons = c.reasons()
	if len(c.fits) > 0 || len(gates) > 0 {
		return why, nil
	}
	var err error
	why.Smallest, err = c.smallest(ctx)
	return why, err
}

// mistakes returns the mistakes in the pod's annotations.
func (c *cycle) mistakes() []string {
	if c.profile.devices == nil {
		return nil
	}
	return c.profile.devices.Mistakes(c.pod)
}

// reasons groups the nodes that the pod does not fit by their reasons, as the pod's event does.
func (c *cycle) reasons() []schedulerapi.Reason {
	var reasons []schedulerapi.Reason
	index := map[string]int{}
	for _, m := range c.misfits {
		text := strings.Join(m.status.Reasons(), ", ")
		i, ok := index[text]
		if !ok {
			i = len(reasons)
			index[text] = i
			reasons = append(reasons, schedulerapi.Reason{Text: text})
		}
		reasons[i].Nodes = append(reasons[i].Nodes, m.node.Node().Name)
		reasons[i].EndingHelps = reasons[i].EndingHelps || m.status.Code() == fwk.Unschedulable
	}
	slices.SortStableFunc(reasons, func(a, b schedulerapi.Reason) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Text, b.Text))
	})
	return reasons
}
