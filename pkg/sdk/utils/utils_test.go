// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package utils_test

import (
	"bytes"
	"log"
	"net"
	"reflect"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

func TestKeysComeSorted(t *testing.T) {
	tests := map[string]struct {
		m    any
		want []string
	}{
		"a map of strings": {
			map[string]string{"b": "1", "a": "2", "c": "3"},
			[]string{"a", "b", "c"},
		},
		"a map whose keys are a named type":   {types.ResourceList{"b": 1, "a": 2}, []string{"a", "b"}},
		"a map of containers":                 {map[string]types.ContainerInfo{"x": {}}, []string{"x"}},
		"an empty map has an empty list":      {map[string]int{}, []string{}},
		"a nil map has an empty list as well": {types.ResourceList(nil), []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := utils.SortedStringKeys(test.m); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestOtherTypesThanMapsWithStringKeysPanic(t *testing.T) {
	tests := map[string]func(){
		"keys of a slice":           func() { utils.SortedStringKeys([]string{"a"}) },
		"keys of a map by number":   func() { utils.SortedStringKeys(map[int]string{}) },
		"keys of nothing":           func() { utils.SortedStringKeys(nil) },
		"assigning below a number":  func() { utils.AssignMap(map[string]any{"a": 1}, []string{"a", "b"}, 2) },
		"assigning without a key":   func() { utils.AssignMap(map[string]any{}, nil, 2) },
		"assigning into a nil map":  func() { utils.AssignMap(map[string]any(nil), []string{"a"}, 2) },
		"assigning the wrong type":  func() { utils.AssignMap(map[string]int{}, []string{"a"}, "2") },
		"looking up below a number": func() { utils.GetMap(map[string]int{"a": 1}, []string{"a", "b"}) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
}

func TestAssignedValuesAreFound(t *testing.T) {
	tests := map[string]struct {
		m    any
		keys []string
		val  any
		want any
	}{
		"one key": {map[string]int{"a": 1}, []string{"b"}, 2, map[string]int{"a": 1, "b": 2}},
		"maps in between are made": {
			map[string]map[string]int{},
			[]string{"a", "b"},
			2,
			map[string]map[string]int{"a": {"b": 2}},
		},
		"a nil map in between is made": {
			map[string]map[string]int{"a": nil},
			[]string{"a", "b"},
			2,
			map[string]map[string]int{"a": {"b": 2}},
		},
		"maps of anything are made": {
			map[string]any{},
			[]string{"a", "b", "c"},
			true,
			map[string]any{"a": map[string]any{"b": map[string]any{"c": true}}},
		},
		"maps that are there are kept": {
			map[string]any{"a": map[string]int{"x": 1}},
			[]string{"a", "b"},
			2,
			map[string]any{"a": map[string]int{"x": 1, "b": 2}},
		},
		"keys may be of a named type": {
			types.ResourceList{},
			[]string{"nvidia.com/gpu"},
			int64(2),
			types.ResourceList{"nvidia.com/gpu": 2},
		},
		"nil is the element type's zero": {map[string]any{}, []string{"a"}, nil, map[string]any{"a": nil}},
		"a value in place of an old one": {
			map[string]string{"a": "1"},
			[]string{"a"},
			"2",
			map[string]string{"a": "2"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			utils.AssignMap(test.m, test.keys, test.val)
			if !reflect.DeepEqual(test.m, test.want) {
				t.Errorf("got %v, want %v", test.m, test.want)
			}
			if got := utils.GetMap(test.m, test.keys); !reflect.DeepEqual(got, test.val) {
				t.Errorf("GetMap = %v, want %v", got, test.val)
			}
		})
	}
}

func TestLookingUpWhatIsNotThereGivesNil(t *testing.T) {
	m := map[string]map[string]int{"a": {"b": 1}}
	for _, keys := range [][]string{{"x"}, {"a", "x"}, {"x", "b"}} {
		if got := utils.GetMap(m, keys); got != nil {
			t.Errorf("GetMap(%v) = %v, want nil", keys, got)
		}
	}
	if got := utils.GetMap(m, nil); !reflect.DeepEqual(got, m) {
		t.Errorf("without keys: %v, want the map itself", got)
	}
}

// TestComparisonSeesEveryField changes each field of each type in turn, so that a field added later
// cannot be forgotten.
func TestComparisonSeesEveryField(t *testing.T) {
	tests := map[string]struct {
		fresh func() any
		equal func(a, b any) bool
	}{
		"ContainerInfo": {
			fresh: func() any { return types.NewContainerInfo() },
			equal: func(a, b any) bool {
				return utils.CompareContainer(a.(*types.ContainerInfo), b.(*types.ContainerInfo))
			},
		},
		"PodInfo": {
			fresh: func() any { return types.NewPodInfo() },
			equal: func(a, b any) bool { return utils.ComparePod(a.(*types.PodInfo), b.(*types.PodInfo)) },
		},
		"NodeInfo": {
			fresh: func() any { return types.NewNodeInfo() },
			equal: func(a, b any) bool { return utils.CompareNode(a.(*types.NodeInfo), b.(*types.NodeInfo)) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if !test.equal(test.fresh(), test.fresh()) {
				t.Error("two fresh values differ")
			}
			fields := reflect.TypeOf(test.fresh()).Elem()
			if empty := reflect.New(fields).Interface(); !test.equal(empty, test.fresh()) {
				t.Error("nil maps and empty maps differ")
			}
			if none := reflect.Zero(reflect.PointerTo(fields)).Interface(); !test.equal(none, none) ||
				test.equal(none, test.fresh()) ||
				test.equal(test.fresh(), none) {
				t.Error("nil must equal nil and nothing else")
			}
			for i := range fields.NumField() {
				changed := test.fresh()
				change(reflect.ValueOf(changed).Elem().Field(i))
				if test.equal(changed, test.fresh()) || test.equal(test.fresh(), changed) {
					t.Errorf("a change of %s is not seen", fields.Field(i).Name)
				}
			}
		})
	}
}

func change(field reflect.Value) {
	if field.Kind() == reflect.String {
		field.SetString("changed")
		return
	}
	field.SetMapIndex(reflect.ValueOf("added").Convert(field.Type().Key()), reflect.Zero(field.Type().Elem()))
}

func TestMapsOfStringsAreComparedByEntries(t *testing.T) {
	if !utils.CompareMapStringString(map[string]string{"a": "1"}, map[string]string{"a": "1"}) {
		t.Error("equal maps differ")
	}
	if utils.CompareMapStringString(map[string]string{"a": "1"}, map[string]string{"a": "2"}) {
		t.Error("different values are equal")
	}
	if utils.CompareMapStringString(map[string]string{"a": "1"}, nil) {
		t.Error("an entry more is not seen")
	}
}

func TestLocalAddressesHaveNoLoopback(t *testing.T) {
	ips, err := utils.LocalIPsWithoutLoopback()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(ips, net.IP.IsLoopback); i >= 0 {
		t.Errorf("%v is loopback", ips[i])
	}
}

func TestOutsideAHostMessagesGoToTheStandardLog(t *testing.T) {
	var out bytes.Buffer
	writer, flags := log.Writer(), log.Flags()
	log.SetOutput(&out)
	log.SetFlags(0)
	t.Cleanup(func() { log.SetOutput(writer); log.SetFlags(flags) })

	utils.Logf(0, "found %d GPUs", 8)
	utils.Logf(4, "looked at %d paths", 99)
	utils.Warningf("GPU %s is hot", "a")
	utils.Errorf("GPU %s is lost", "b")

	if got, want := out.String(), "found 8 GPUs\nwarning: GPU a is hot\nerror: GPU b is lost\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if utils.Logb(4) || !utils.Logb(0) {
		t.Error("level 0 is on and level 4 is off by default")
	}
}
