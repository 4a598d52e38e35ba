// A gambler with 8 stops at 20, or when nothing is left.
dtmc
module gambler
  money : [0..20] init 8;
  [] money>0 & money<20 -> 0.48 : (money'=money+1) + 0.52 : (money'=money-1);
  [] money=0 | money=20 -> true;
endmodule
label "goal" = money=20;
label "avoid" = money=0;
