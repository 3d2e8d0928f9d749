// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// manifestOptions are the arguments of fit and whatif.
type manifestOptions struct {
	placementOptions
	file     string
	replicas int32

	without, withNode, cordon []string // of whatif
}

func (o *manifestOptions) addFlags(command *cobra.Command) {
	o.placementOptions.addFlags(command)
	command.Flags().StringVarP(&o.file, "filename", "f", "",
		"File with a Pod, Deployment, StatefulSet, ReplicaSet or Job, or - for standard input. Other objects in it "+
			"are left out.")
	command.Flags().Int32Var(&o.replicas, "replicas", 0, "How many pods, in place of what the manifest says.")
}

// fit returns the question about the manifest.
func (o *manifestOptions) fit() (*schedulerapi.FitRequest, error) {
	request, err := o.readManifest()
	if err != nil {
		return nil, err
	}
	if o.replicas != 0 {
		request.Replicas = o.replicas
	}
	request.Within = o.within.Milliseconds()
	return request, nil
}

// whatif returns the question about a pod or the manifest, with the changes.
func (o *manifestOptions) whatif(pods []string) (*schedulerapi.WhatIfRequest, error) {
	request := &schedulerapi.WhatIfRequest{}
	if len(pods) > 0 {
		name := o.podName(pods[0])
		request.Pod, request.Within = &name, o.within.Milliseconds()
	} else {
		fit, err := o.fit()
		if err != nil {
			return nil, err
		}
		request.FitRequest = *fit
	}
	for _, text := range o.without {
		name := o.podName(text)
		request.Changes = append(request.Changes, schedulerapi.Change{Without: &name})
	}
	for _, text := range o.withNode {
		node, ok := strings.CutPrefix(text, "like/")
		if !ok || node == "" {
			return nil, fmt.Errorf("--with-node is %q: write like/NODE", text)
		}
		request.Changes = append(request.Changes, schedulerapi.Change{WithNodeLike: node})
	}
	for _, text := range o.cordon {
		request.Changes = append(request.Changes, schedulerapi.Change{Cordon: text})
	}
	return request, nil
}

// readManifest returns the pods of the manifest as a question: those of the one object that has
// some.
func (o *manifestOptions) readManifest() (*schedulerapi.FitRequest, error) {
	name, from := o.file, o.env.In
	if name == stdin {
		name = "<stdin>"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // opened for reading
		from = file
	}
	var found *schedulerapi.FitRequest
	documents := utilyaml.NewYAMLReader(bufio.NewReader(from))
	for {
		text, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			return nil, fmt.Errorf("%s has no Pod, Deployment, StatefulSet, ReplicaSet or Job", name)
		case errors.Is(err, io.EOF):
			found.Namespace = cmp.Or(found.Namespace, o.namespace)
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		one, err := podsOfManifest(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if one != nil && found != nil {
			return nil, fmt.Errorf("%s has several objects with pods, such as %q and %q: ask about one at a time",
				name, found.Template.Name, one.Template.Name)
		}
		found = cmp.Or(one, found)
	}
}

// podsOfManifest returns the pods of an object, or nil for one without.
func podsOfManifest(text []byte) (*schedulerapi.FitRequest, error) {
	var content any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	if content == nil { // comments at most
		return nil, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	newRequest := func(
		meta metav1.ObjectMeta, template corev1.PodTemplateSpec, replicas *int32,
	) *schedulerapi.FitRequest {
		template.Name, template.Namespace = cmp.Or(meta.Name, meta.GenerateName), ""
		return &schedulerapi.FitRequest{
			Namespace: meta.Namespace, Template: template, Replicas: ptr.Deref(replicas, 1),
		}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		return newRequest(o.ObjectMeta, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: o.Labels, Annotations: o.Annotations,
		}, Spec: o.Spec}, nil), nil
	case *appsv1.Deployment:
		return newRequest(o.ObjectMeta, o.Spec.Template, o.Spec.Replicas), nil
	case *appsv1.StatefulSet:
		return newRequest(o.ObjectMeta, o.Spec.Template, o.Spec.Replicas), nil
	case *appsv1.ReplicaSet:
		return newRequest(o.ObjectMeta, o.Spec.Template, o.Spec.Replicas), nil
	case *batchv1.Job:
		at := ptr.Deref(o.Spec.Parallelism, 1)
		at = min(at, ptr.Deref(o.Spec.Completions, at))
		return newRequest(o.ObjectMeta, o.Spec.Template, &at), nil
	case *appsv1.DaemonSet:
		return nil, fmt.Errorf("DaemonSet %q: its pods are for one node each; ask about a Pod with the node's name in "+
			"its node selector", o.Name)
	default:
		return nil, nil
	}
}
