// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/await"
)

// state is all objects of the cluster and all files of its nodes, as far as a program could leave
// something there.
type state struct {
	// objects are by resource, namespace and name.
	objects map[string]string
	// files are by node and path; contents are those of the kubelet's own files.
	files map[string]bool
}

// inspect reads the state.
func (s *story) inspect() *state {
	s.Helper()
	found := &state{objects: map[string]string{}, files: map[string]bool{}}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(shared.Client.Config).ServerPreferredResources()
	s.must(err)
	client, err := dynamic.NewForConfig(shared.Client.Config)
	s.must(err)
	for _, list := range lists {
		for _, resource := range list.APIResources {
			// Events and leases tell of what happened, endpoints are those of their slices, and
			// bindings, reviews and such cannot be listed.
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "leases" ||
				resource.Name == "componentstatuses" || resource.Name == "endpoints" {
				continue
			}
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			s.must(err)
			objects, err := client.Resource(version.WithResource(resource.Name)).List(s.ctx, metav1.ListOptions{})
			s.must(err)
			for _, object := range objects.Items {
				found.objects[resource.Name+" "+object.GetNamespace()+"/"+object.GetName()] = s.content(&object)
			}
		}
	}
	for _, node := range shared.Nodes {
		printed, err := node.Run(s.ctx, "/usr/bin/find", "/var", "/run", "/etc/kubedevice", "/etc/systemd/system",
			"/dev", "-xdev", "-not", "-type", "l")
		if err != nil && printed == "" {
			s.Fatal(err)
		}
		for path := range strings.Lines(printed) {
			if path = strings.TrimSpace(path); !slices.ContainsFunc(restless, func(prefix string) bool {
				return strings.HasPrefix(path, prefix)
			}) {
				found.files[node.Name+" "+path] = true
			}
		}
	}
	return found
}

// restless are the paths of nodes below which runtime and kubelet come and go with every pod, and
// the kubelet's checkpoint of devices.
var restless = []string{
	"/var/lib/containerd/", "/run/containerd/", "/var/lib/kubelet/pods/", "/var/log/", "/var/lib/cni", "/run/netns",
	"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "/var/tmp/", "/dev/pts/", "/dev/shm/",
	"/run/systemctl", "/var/run", "/var/lib/kubelet/actuated_pods_state", "/var/lib/kubelet/allocated_pods_state",
	"/run/cni", "/run/runc",
}

// content is what an object has, without what changes by itself: who wrote it and when, what nodes
// report of themselves but for their resources, and the pods of the test's own namespace.
func (s *story) content(object *unstructured.Unstructured) string {
	s.Helper()
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	switch object.GetKind() {
	case "Node":
		for _, field := range []string{"conditions", "images", "nodeInfo", "volumesInUse", "volumesAttached"} {
			unstructured.RemoveNestedField(object.Object, "status", field)
		}
	case "Pod":
		unstructured.RemoveNestedField(object.Object, "status")
	}
	text, err := yaml.Marshal(object.Object)
	s.must(err)
	return string(text)
}

// leaveTimeout is how long what was deleted may take to be gone.
const leaveTimeout = 2 * time.Minute

// checkNothingIsLeft fails the test unless everything is as it was before, once what was deleted is
// gone.
func (s *story) checkNothingIsLeft() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, leaveTimeout)
	defer cancel()
	if err := await.Success(ctx, "everything to be gone", func(context.Context) error {
		after := s.inspect()
		objects := cmp.Diff(s.before.objects, after.objects)
		before, now := slices.Sorted(maps.Keys(s.before.files)), slices.Sorted(maps.Keys(after.files))
		if files := cmp.Diff(before, now); objects != "" || files != "" {
			return fmt.Errorf("objects (-before +after):\n%s\nfiles of the nodes (-before +after):\n%s", objects, files)
		}
		return nil
	}); err != nil {
		s.Error(err)
	}
}
