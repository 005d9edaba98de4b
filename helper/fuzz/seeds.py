#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what a fuzz target begins with: seeds.py TARGET DIR DICTIONARY.

Each seed becomes a file in DIR; DICTIONARY gets the words that the target's inputs are
made of. Nothing here is random: the same every time.
"""
import os
import sys


def s3_xml():
    head = '\n<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    tail = '</ListBucketResult>'
    entry = ('<Contents><Key>p%2Fa+b%2B</Key><LastModified>2020-09-13T12:26:40.123Z</LastModified>'
             '<ETag>&quot;x&quot;</ETag><Size>12</Size><Owner><ID>i</ID></Owner></Contents>')
    below = '<CommonPrefixes><Prefix>p%2Fsub%2F</Prefix></CommonPrefixes>'
    more = ('<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>'
            '<EncodingType>url</EncodingType>')
    seeds = [
        'p/' + head + entry + below + more + tail,
        head + '<Contents><Key>a</Key><Size>1</Size></Contents>' + tail,
        head + '<Contents><Key>a</Key><Size> -1</Size></Contents>' + tail,
        head + '<Contents><Key>a</Key><Size>9223372036854775808</Size></Contents>' + tail,
        head + '<Contents><Key>..</Key></Contents><CommonPrefixes><Prefix>/</Prefix></CommonPrefixes>' + tail,
        head + '<Contents/>' * 300 + tail,
        head + '<Contents><Key>a</Key></Contents>' * 60 + tail,
        head + '<IsTruncated>true</IsTruncated><NextContinuationToken/>' + tail,
        head + '<NextContinuationToken>' + 'x' * 4000 + '&amp;' * 100 + '</NextContinuationToken>' + more + tail,
        '\n<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>',
        '\n<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;&a;">]><ListBucketResult>&c;</ListBucketResult>',
        '\n' + '<a>' * 20,
    ]
    words = ['ListBucketResult', 'Contents', 'CommonPrefixes', 'Key', 'Size', 'LastModified', 'Prefix',
             'IsTruncated', 'true', 'NextContinuationToken', 'EncodingType', 'url', 'Error', 'Code',
             'Message', '<Contents>', '</Contents>', '<Key>', '</Key>', '<Size>', '</Size>', '%2F', '%00',
             '..', '&#10;', '&amp;', '<![CDATA[', ']]>', '<!--', '-->', '<!DOCTYPE x [', '<!ENTITY a "b">',
             ' -1', '18446744073709551615', '9223372036854775808', '2020-09-13T12:26:40.123Z']
    return seeds, words


def autoindex():
    def entry(name, kind='file', rest=',"size":1'):
        return '{"name":"%s","type":"%s"%s}' % (name, kind, rest)

    seeds = [
        '[\n{ "name":"d", "type":"directory", "mtime":"Sun, 13 Sep 2020 12:26:40 GMT" },\n'
        '{ "name":"f", "type":"file", "mtime":"Sun, 13 Sep 2020 12:26:40 GMT", "size":5000000000 }\n]',
        '[' + entry('a\\u0041\\"') + ',' + entry('s', 'other', '') + ']',
        '[' + ','.join([entry('x')] * 60) + ']',
        '[' + '{},' * 700 + '{}]',
        '[' + '[],' * 700 + '[]]',
        '[' + '1,' * 1000 + '1]',
        '[{"name":"a","type":"file","size":1,"x":' + '[' * 100 + ']' * 100 + '}]',
        '[' + entry('a/b') + ',' + entry('..') + ',' + entry('\\u0000') + ',' + entry('') + ']',
        '[' + entry('a', rest=',"size":-1') + ']', '[' + entry('a', rest=',"size":9223372036854775808') + ']',
        '[]', '[ ]x', '{}', '[' + entry('a') + ',]', '[' + entry('a') + entry('b') + ']',
        b'[{"name":"\xff\xfe\xf4\x8f\xbd\x81\xc3\xa9","type":"file","size":1}]',
        b'\xf4\x8f\xbd\x81', b'a\xff',
    ]
    words = ['{"name":"', '","type":"file","size":1}', '"type"', '"name"', '"size"', '"mtime"', '"file"',
             '"directory"', '\\u0000', '\\u002f', '\\udbff\\udf2f', '},{', '[{', '}]', '1e400', '1e18',
             '-1', '9223372036854775807', '9223372036854775808', '\\"', '\\\\', 'null', 'true',
             '"Sun, 13 Sep 2020 12:26:40 GMT"']
    return seeds, words


def http_reply():
    abc64 = 'ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='
    abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    seeds = [
        'HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 0-99/1000\r\n'
        'ETag: "abc"\r\nLast-Modified: Sun, 13 Sep 2020 12:26:40 GMT\r\nDate: Mon, 14 Sep 2020 12:26:40 GMT\r\n\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: W/"x"\r\nLast-Modified: Sun, 13 Sep 2020 12:26:40 GMT\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "5f5e1000-5"\r\nx-amz-version-id: v1\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nLast-Modified: Sun, 13 Sep 2020 12:26:40 GMT\r\n'
        'Date: Sun, 13 Sep 2020 12:26:41 GMT\r\n',
        'HTTP/1.1 416 x\r\nContent-Range: bytes */1000\r\nRetry-After: 5\r\n',
        'HTTP/1.1 301 x\r\nLocation: http://127.0.0.1/d/\r\nx-amz-bucket-region: eu-west-1\r\n',
        'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-amz-version-id: null\r\n',
        'HTTP/1.1 206 x\r\nContent-Range: bytes 5-4/100\r\n', 'HTTP/1.1 206 x\r\nContent-Range: bytes 5-4/*\r\n',
        'HTTP/1.1 206 x\r\nContent-Range: bytes 5-100/100\r\n',
        'HTTP/1.1 206 x\r\nContent-Range: bytes 5-18446744073709551615/*\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "' + 'e' * 254 + '\r\n--\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-amz-version-id: ' + 'v' * 255 + '\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "x"\r\n--\nHTTP/1.1 206 x\r\nETag: "x"\r\n'
        'Content-Range: bytes 0-1/5\r\n',
        'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-amz-checksum-crc32: NSRBwg==\r\n'
        'x-amz-checksum-crc32c: NSRBwg==-2\r\nx-amz-checksum-type: COMPOSITE\r\n'
        'Repr-Digest: sha-256=:' + abc64 + ':, sha-512=::\r\nDigest: SHA-256=' + abc64 + ',crc32=NSRBwg==\r\n',
        abc + '  x\n\\' + abc + ' *d/x\\n\n' + abc + '\r\n',
    ]
    words = ['HTTP/1.1 200 OK\n', 'HTTP/1.1 206 x\n', 'Content-Length: ', 'Content-Range: bytes ', 'ETag: "',
             'ETag: W/"', 'Last-Modified: ', 'Date: ', 'Retry-After: ', 'x-amz-version-id: ',
             'x-amz-bucket-region: ', 'Location: ', 'Sun, 13 Sep 2020 12:26:40 GMT', '/*', '*/',
             '18446744073709551615', '9223372036854775808', '0-99/1000', '\r\n', '19700101', '+2400',
             'x-amz-checksum-sha256: ', 'x-amz-mp-parts-count: 10000\n', 'x-amz-checksum-type: COMPOSITE\n', 'Repr-Digest: sha-256=:', 'Digest: SHA-256=',
             abc, abc64, '  x', ' *x']
    return seeds, words


def config():
    conf = ('[cache]\ndir = /a\ndir=/b\ncapacity = 50%\nlow = 80\nhigh = 90%\ncleanup_interval = 5m\n'
            '[fetch]\nworkers = 4\nconnections_per_host = 8\nbuffer_memory = 512M\nretry_budget = 60s\n'
            'stall_timeout = 500ms\n[prefetch]\nmax_rate = 1.5G\nmax_share = 50%\n[metrics]\nlisten =\n'
            '[log]\nlevel = debug\nformat = json\n[control]\nsocket = /run/x\n'
            '; comment\n[source s3://models]\nendpoint = http://h:9000\nregion = r\nanon = yes\n'
            'access_key = a\nsecret_key = b\nheader = A: b\nheader = C: d\nquota = 1T\nvirtual_host = off\n')
    profile = ('# c\n[default]\naws_access_key_id = AKIA\naws_secret_access_key=secret\n'
               'aws_session_token = ' + 't' * 300 + '\n[profile p]\nregion = eu\ns3 =\n  max = 1\n')
    seeds = ['c' + conf, 'p' + profile,
             'p[p]\naws_access_key_id=A\naws_secret_access_key = S\n[q]\naws_secret_access_key=T\n'
             '[p]\naws_access_key_id = B\naws_session_token=t\n',
             'p[default]\naws_access_key_id = A ; ' + 'c' * 200 + '\n',
             'p[default]\naws_secret_access_key = S\n#' + 'c' * 200 + '\naws_access_key_id=A\n',
             'p[default]\nk=v\n[profile ' + 'x' * 200 + ']\nk=w\n',
             'c[fetch]\nworkers = 65\n', 'c[cache]\nlow=9\nhigh=8\n', 'n1.5G', 'n512MiB', 'n5 ', 'n30s',
             'n500ms', 'n1e3', 'n0x10', 'n9e18', 'n100%', 'c[' + 's' * 2097 + ']\n',
             'c[' + 's' * 4150 + ']\n']
    words = conf.replace(' = ', '=').split('\n') + [
        '[default]', '[p]', 'aws_access_key_id', 'aws_secret_access_key', 'aws_session_token', 'region', '[profile ',
        ' ;', ' #', 'KiB', 'ms', 'nan', 'inf', '\\', ' = ', ']', '\r\n']
    return seeds, words


def index():
    # Changes to the records that the target makes: database, kind, which one, what to do.
    seeds = [b'']
    for database in range(7):
        for record in range(3):
            seeds.append(bytes([database, 0, record, 8, 0xff]))  # another byte
            seeds.append(bytes([database, 1, record, 4, 0]))     # cut
            seeds.append(bytes([database, 2, record, 3, 0]))     # longer
            seeds.append(bytes([database, 3, record, 0]))        # gone
            seeds.append(bytes([database, 5, record, 7, 1]))     # of another key
        seeds.append(bytes([database, 4, 0, 16, 24]) + bytes(40))
    for offset in range(0, 112, 4):
        for value in 0, 1, 0x80:
            seeds.append(bytes([0, 0, 0, offset, value]))
            seeds.append(bytes([1, 0, 1, offset, value]))
    seeds.append(bytes([1, 2, 1, 16, 0, 1, 0, 1, 24, 3]))  # more sums than the block has
    return seeds, [b'\0\0\0\0\0\0\0\1', b'\xff' * 8, b'\x7f' + b'\xff' * 7]


def source():
    seeds = [
        's3://bucket/prefix/\nendpoint=http://127.0.0.1:9000\nanon\nregion=r\n',
        's3://bucket\nendpoint=https://h:443/path/\nvirtual_host\n',
        's3://bucket.dots/a b%2F\n', 's3://models/x\nprofile=p\nanon=off\n',
        'http://127.0.0.1:8080/a%20b/\nca=/x\n', 'https://h/d\n', 'http://h/a b"<>\n',
        'http://u:S3CRET@h/\n', 'http://[::1]:80/\n', 'http://h:99999/\n', 'http://h?q\n',
        'file:///tmp\n', 'file:///proc/self/../x\n', 'file://host/\n', 'ftp://h\n', 'http://\n', 's3:///\n',
        'http://h/a\x01\x1b[31mb:%zz\n', 'x\ny://h\n',
    ]
    words = ['s3://', 'http://', 'https://', 'file:///', 'endpoint=', 'region=', 'profile=', 'anon',
             'anon=off', 'ca=', 'virtual_host', '@', 'S3CRET', '?', '#', '%2F', '%00', '..', '//', ':80',
             ':443', '[::1]', '\n', '127.0.0.1', 'models/', '\x7f']
    return seeds, words


def control():
    part = (r'{"command":"profile-part","part":"{\"format\":\"wfs-profile\",\"version\":1,\"models\":[{\"directory\":\"d\",'
            r'\"block_size\":65536,\"files\":[{\"name\":\"n\",\"size\":900000,\"version\":\"v\"}],'
            r'\"streams\":[\"0:0+3 0:7\",\"0:4\"]}]}"}' + '\n')
    seeds = [
        part + '{"command":"profile-load","source":"file:///a","path":"p"}\n', part.replace('0:7', '0:1'),
        '{"command":"profile-save","source":"file:///a"}\n', '{"command":"profile-list"}\n',
        '{"command":"profile-drop","source":"file:///a","path":"p"}\n',
        '{"command":"stat"}\n', '{"command":"mounts"}\n', '{"command":"sync"}\n',
        '{"command":"ls","source":"http://h/","path":"a","options":"anon\\nregion=r"}\n',
        '{"command":"ls","source":"file:///tmp"}\n', '{"command":"fetch","source":"s3://b/","block":65536}\n',
        '{"command":"invalidate","mount":1,"path":"a"}\n', '{"command":"invalidate","source":"s3://b"}\n',
        '{"command":"stat","mount":1,"path":"a","version":"' + 'v' * 255 + '","block":65536,"size":5}\n',
        '{"command":"stat","mount":1,"path":"","version":"' + 'v' * 256 + '","block":65536}\n',
        '{"command":"sync","mount":1,"path":"a"}\n', '{"command":"sync","mount":2}\n',
        '{"command":"verify","source":"file:///a","digest":"crc32:352441c2"}\n',
        '{"command":"evict","mount":1}\n', '{"command":"evict","source":"s3://b","path":"x"}\n',
        '{"command":"ls","source":"' + '\u00e9' * 600 + '"}\n', '{"command":"x"}\n', '[]\n', '1\n', '\n',
        '{"command":1}\n', '{"command":"ls","command":"ls"}\n', '[' * 300 + '\n',
        '{"command":"ls","source":"a\\u0000b"}\n', '{"command":"invalidate","mount":2,"source":"s3:'
        + '\u20ac' * 300 + '"}\n{"command":"stat"}\n', '{"command":"stat"}',
    ]
    words = ['"profile-part"', '"profile-load"', '0:0+3', '\\"size\\":', '\\"streams\\":',
             '"command":', '"verify"', '"digest"', '"stat"', '"ls"', '"fetch"', '"sync"', '"invalidate"', '"evict"', '"mounts"',
             '"source":', '"path":', '"options":', '"mount":', '"block":', '"version":', '"size":', '"verify":true', '1', '2',
             '"file:///tmp"', '"s3://b"', '\\u0000', '\\ud800', '}\n{', '"\\u20ac"']
    return seeds, words


def to_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def main():
    name, directory, dictionary = sys.argv[1:]
    seeds, words = globals()[name]()
    os.makedirs(directory, exist_ok=True)
    for number, seed in enumerate(seeds):
        with open(os.path.join(directory, 'seed-%03d' % number), 'wb') as out:
            out.write(to_bytes(seed))
    with open(dictionary, 'w') as out:
        for word in words:
            if word:
                out.write('"%s"\n' % ''.join('\\x%02x' % byte for byte in to_bytes(word)))


if __name__ == '__main__':
    main()
