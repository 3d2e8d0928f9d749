// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

func TestADamagedRecordIsToldOnTheNode(t *testing.T) {
	for name, damaged := range map[string]bool{"damaged": true, "missing": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), grantsFile)
			if damaged {
				if err := os.WriteFile(path, []byte("no record"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			record := grants.New(path, "", noPods{}, func(string) bool { return false })
			defer record.Close()
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
				events.warnOfDamage(t.Context(), record, path)
			}()
			if err := record.Reconcile(t.Context()); err != nil {
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
