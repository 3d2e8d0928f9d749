// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"fmt"
	"reflect"
	"slices"
)

// SortedStringKeys returns the keys of m, which is any map with string keys, in ascending order. It
// panics on anything else.
func SortedStringKeys(m any) []string {
	v := stringMap(m)
	keys := make([]string, 0, v.Len())
	for _, key := range v.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

// AssignMap sets m[keys[0]][keys[1]]… to val and makes the maps in between that are missing, with
// the element type of the map around them, or as map[string]any where that is an interface. It
// panics when keys is empty, when m is nil or one of the maps is no map with string keys, and when
// val cannot be assigned.
func AssignMap(m any, keys []string, val any) {
	if len(keys) == 0 {
		panic("utils.AssignMap: no keys")
	}
	at := stringMap(m)
	for _, key := range keys[:len(keys)-1] {
		k := keyOf(at, key)
		if !at.MapIndex(k).IsValid() || isNilMap(at.MapIndex(k)) {
			at.SetMapIndex(k, newMap(at.Type().Elem()))
		}
		at = stringMap(at.MapIndex(k).Interface())
	}
	value := reflect.Zero(at.Type().Elem())
	if val != nil {
		value = reflect.ValueOf(val)
	}
	at.SetMapIndex(keyOf(at, keys[len(keys)-1]), value)
}

// GetMap returns m[keys[0]][keys[1]]…, nil when one of the keys is missing, and m itself when
// keys is empty. It panics when one of the maps is no map with string keys.
func GetMap(m any, keys []string) any {
	for _, key := range keys {
		at := stringMap(m)
		value := at.MapIndex(keyOf(at, key))
		if !value.IsValid() {
			return nil
		}
		m = value.Interface()
	}
	return m
}

func stringMap(m any) reflect.Value {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		panic(fmt.Sprintf("utils: a %T is no map with string keys", m))
	}
	return v
}

// keyOf converts key to the key type of m, which may be a named string type.
func keyOf(m reflect.Value, key string) reflect.Value {
	return reflect.ValueOf(key).Convert(m.Type().Key())
}

func isNilMap(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return !v.IsValid() || v.Kind() == reflect.Map && v.IsNil()
}

func newMap(of reflect.Type) reflect.Value {
	if of.Kind() == reflect.Interface {
		return reflect.ValueOf(map[string]any{})
	}
	return reflect.MakeMap(of)
}
