// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// checkNames finds what cannot be served of the names of HAMi and KAI. Of the pod the limits and
// the annotation were read. Annotations that only choose devices matter for a pod that requests
// some.
func (l *linter) checkNames(t template, p *pod) {
	annotations := entries(get(t.metadata, "annotations"))
	p.Annotations = map[string]string{}
	for _, e := range annotations {
		if e.value.Kind == yaml.ScalarNode {
			p.Annotations[e.key.Value] = e.value.Value
		}
	}
	p.requests = p.requests || names.Requests(p.Pod)
	compiled := names.Compile(p.Pod)
	if compiled == nil || !p.requests && len(p.limits) == 0 {
		return
	}
	for _, err := range compiled.Errors {
		at := l.keyOf(err, annotations, p.limits)
		l.addAt(Error, at, "%v", err).Word = err.Key
	}
	if len(compiled.Errors) > 0 || p.written == nil {
		return
	}
	if _, err := request.WithNames(p.Pod, p.written); err != nil {
		l.addAt(Error, get(t.metadata, "annotations"), "%v", err)
	}
}

// keyOf returns the key of the annotation or of the limit that an error is about.
func (l *linter) keyOf(err *names.Error, annotations []entry, limits []limit) *yaml.Node {
	if err.Annotation {
		i := slices.IndexFunc(annotations, func(e entry) bool { return e.key.Value == err.Key })
		return annotations[i].key
	}
	i := slices.IndexFunc(limits, func(limit limit) bool {
		return limit.container == err.Container && limit.name == types.ResourceName(err.Key)
	})
	return limits[i].key
}
