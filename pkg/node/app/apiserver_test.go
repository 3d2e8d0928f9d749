// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

func TestACorruptCheckpointIsAnEventOnTheNode(t *testing.T) {
	for name, damaged := range map[string]bool{"damaged": true, "missing": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), grantsFile)
			if damaged {
				if err := os.WriteFile(path, []byte("no record"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			checkpoint := grants.New(grants.Options{
				Path: path, Runtime: noPods{}, Pods: pods.NewRegistry(0),
			})
			defer checkpoint.Close()
			client := fake.NewClientset()
			sent := make(chan *corev1.Event, 10)
			client.PrependReactor("create", "events",
				func(action clienttesting.Action) (bool, apiruntime.Object, error) {
					event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
					sent <- event
					return true, event, nil
				})
			events := newAnnouncer(t.Context(), "node-1")
			events.sendTo(client)
			warned := make(chan struct{})
			go func() {
				defer close(warned)
				events.warnOfDamage(t.Context(), checkpoint, path)
			}()
			if err := checkpoint.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-warned
			if !damaged {
				events.close()
				if len(sent) > 0 {
					t.Errorf("got %v", <-sent)
				}
				return
			}
			defer events.close()
			select {
			case event := <-sent:
				if event.InvolvedObject.Kind != "Node" || event.InvolvedObject.Name != "node-1" ||
					event.Reason != reasonDamaged ||
					!strings.Contains(event.Message, path+".corrupt-*") {
					t.Errorf("got %v", event)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is reported after 20s")
			}
		})
	}
}

// The first comparison with the runtime is over before there is a client.
func TestAContainerWhoseAnnotationDoesNotCountIsReportedOnItsPodAndCounted(t *testing.T) {
	n := quietNode(t)
	n.checkpoint = grants.New(grants.Options{
		Path: filepath.Join(t.TempDir(), grantsFile), Node: "node-1", Runtime: forgedRuntime{},
		Pods: n.registry, Inventory: n.latest, Observer: findingReporter{n.metrics, n.events},
	})
	for range 2 {
		if err := n.checkpoint.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "kubecri_grant_annotations_ignored_total" {
			for _, metric := range family.GetMetric() {
				counted[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"unsigned": 0, "forged": 1, "unreadable": 0, "conflicting": 0, "missing": 0}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}

	client := fake.NewClientset()
	sent := make(chan *corev1.Event, 10)
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		sent <- event
		return true, event, nil
	})
	n.events.sendTo(client)
	select {
	case event := <-sent:
		about := event.InvolvedObject
		if about.Kind != "Pod" || about.Namespace != "default" || about.Name != "forger" || about.UID != "u" ||
			event.Reason != reasonIgnored || !strings.Contains(event.Message, `container "main"`) {
			t.Errorf("got %v", event)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is reported after 20s")
	}
}

// forgedRuntime has a pod with a container that brings an annotation along.
type forgedRuntime struct{}

func (forgedRuntime) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	return map[string]grants.RuntimeState{"u": {
		Live: true, Namespace: "default", Name: "forger",
		Containers: []grants.RuntimeContainer{{ID: "c", Name: "main", Encoded: "v1.AAAA.{}"}},
	}}, nil
}
