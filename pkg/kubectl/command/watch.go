// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// nodesWatch follows nodes and their pods, and prints a node whenever its devices have changed.
type nodesWatch struct {
	named bool
	print func([]*devices.Node) error

	state   cluster.State
	printed map[string]*devices.Node
}

// eachAlone calls print with each of a list by itself: a watch prints objects, not lists.
func eachAlone[T any](list []T, print func([]T) error) error {
	for i := range list {
		if err := print(list[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// changed takes changes, and prints the nodes that look different now.
func (w *nodesWatch) changed(changes []cluster.Change) error {
	affected, _ := w.state.Apply(changes)
	var list []*devices.Node
	for _, name := range affected {
		if node := w.next(name); node != nil {
			list = append(list, node)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return w.print(list)
}

// next returns a node as it is now if that differs from what was printed last, else nil.
func (w *nodesWatch) next(name string) *devices.Node {
	last := w.printed[name]
	node, pods := w.state.Node(name)
	switch {
	case node == nil && last == nil:
		return nil // a node that is not meant, or was never shown
	case node == nil:
		delete(w.printed, name)
		return &devices.Node{
			TypeMeta: last.TypeMeta, Name: name, Devices: []*devices.Device{},
			Problems: []string{"the node was deleted"},
		}
	case !w.named && last == nil && !devices.MayHaveDevices(node):
		return nil
	}
	now := devices.NewNode(node, pods, time.Time{})
	now.ForgetMeasured()
	if reflect.DeepEqual(now, last) {
		return nil
	}
	w.printed[name] = now
	return now
}

// podsWatch follows pods, and prints a pod whenever what it has or waits for has changed.
type podsWatch struct {
	shown func(*devices.Pod) bool
	print func([]*devices.Pod) error

	printed map[apitypes.UID]*devices.Pod
}

// changed takes changes, and prints the pods that look different now.
func (w *podsWatch) changed(changes []cluster.Change) error {
	newest := map[apitypes.UID]cluster.Change{}
	for _, c := range changes {
		newest[c.Pod.UID] = c
	}
	var list []*devices.Pod
	for uid, c := range newest {
		now, last := devices.NewPod(c.Pod), w.printed[uid]
		switch {
		case last != nil && (c.Gone || now == nil): // gone, or it requests no devices any more
			now = last.Deleted()
			delete(w.printed, uid)
		case c.Gone || last == nil && !w.shown(now):
			continue
		case reflect.DeepEqual(now, last):
			continue
		default:
			w.printed[uid] = now
		}
		list = append(list, now)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *devices.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), goneFirst(a, b),
			cmp.Compare(a.UID, b.UID))
	})
	return w.print(list)
}

// goneFirst compares pods of one name: the one that is gone was there before the other one.
func goneFirst(a, b *devices.Pod) int {
	switch gone := a.State == devices.Deleted; {
	case gone == (b.State == devices.Deleted):
		return 0
	case gone:
		return -1
	default:
		return 1
	}
}
