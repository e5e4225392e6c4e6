#!/bin/sh
# Gives a renewed certificate to nginx. certbot runs it after each renewal:
#   cp deploy/renew.sh /etc/letsencrypt/renewal-hooks/deploy/keras-xmr
# SECRETS is the folder of nginx's files, RELOAD the command by which nginx reads them again; with
# containers: RELOAD="docker compose -f /path/of/deploy/compose.yaml exec -T proxy nginx -s reload".
set -eu
secrets=${SECRETS:-/etc/nginx/secrets}
for name in fullchain.pem privkey.pem; do
    # A copy that is whole takes the place of the former one.
    install -m 400 "$RENEWED_LINEAGE/$name" "$secrets/.$name"
    mv "$secrets/.$name" "$secrets/$name"
done
${RELOAD:-nginx -s reload}
