// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// DecodeNode reads the annotation of a node, in either form. Absent lists are nil. An error is of
// type *Error.
func DecodeNode(value string) (*types.NodeInfo, error) {
	node, tree := &types.NodeInfo{}, newUnfolding()
	err := decode(value, func(r *reader, key string) error {
		switch key {
		case "name":
			return r.name(key, &node.Name)
		case "capacity":
			return r.quantities(key, &node.Capacity)
		case "allocatable":
			return r.quantities(key, &node.Allocatable)
		case "used":
			return r.quantities(key, &node.Used)
		case "scorer":
			return r.scorers(key, &node.Scorer)
		case treeField:
			return r.tree(tree)
		default:
			return r.skip(key)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := tree.addTo(node); err != nil {
		return nil, err
	}
	return node, nil
}

// EncodeNode writes the annotation of a node: the same text for the same content. It is in the
// compact form if that is shorter and the published form has more than 128 KiB. A node that
// DecodeNode would reject is an error of type *Error.
func EncodeNode(node *types.NodeInfo) (string, error) {
	value, err := encode(node)
	if err != nil {
		return "", err
	}
	if len(value) > plainBytes {
		short, err := encodeCompact(node)
		if err != nil {
			return "", err
		}
		if len(short) < len(value) {
			value = short
		}
	}
	if _, err := DecodeNode(value); err != nil {
		return "", err
	}
	return value, nil
}
